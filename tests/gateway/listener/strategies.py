"""Packets that are valid by construction, for both versions of MQTT."""

from __future__ import annotations

from typing import Any, Final, Literal

from hypothesis import strategies as st

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, NO_PROPERTIES, Packet, Properties
from gateway.listener.codec import packets as p

SURROGATES: Final[tuple[Literal["Cs"], ...]] = ("Cs",)
characters = st.characters(exclude_categories=SURROGATES, exclude_characters="\0")
text = st.text(characters, max_size=20)
topics = st.text(st.characters(exclude_categories=SURROGATES, exclude_characters="\0+#"), min_size=1, max_size=20)
filters = st.text(characters, min_size=1, max_size=20).filter(lambda name: not name.startswith("$share/"))
data = st.binary(max_size=40)
u16 = st.integers(1, 65_535)
u32 = st.integers(1, 2**32 - 1)
ids = st.integers(1, 65_535)
flags = st.booleans()
qos = st.integers(0, 2)
pairs = st.lists(st.tuples(text, text), max_size=3).map(tuple)


def properties(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Properties]:
    """Any of the properties named; an absent one is None."""
    optional = {
        name: value if name in {"user", "subscription_ids"} else st.none() | value for name, value in members.items()
    }
    return st.builds(Properties, **optional)


answer_properties = properties(reason_string=text, user=pairs)
publish_members: dict[str, st.SearchStrategy[Any]] = {
    "payload_format": st.just(1),
    "message_expiry": u32,
    "content_type": text,
    "response_topic": topics,
    "correlation_data": data,
    "user": pairs,
}
will_properties = properties(**publish_members, will_delay=u32)
connect_properties = properties(
    session_expiry=u32,
    receive_maximum=st.integers(1, 65_534),
    maximum_packet_size=u32,
    topic_alias_maximum=u16,
    request_response=st.just(1),
    request_problem=st.just(0),
    user=pairs,
)
connack_properties = properties(
    session_expiry=u32,
    receive_maximum=st.integers(1, 65_534),
    maximum_qos=st.sampled_from([0, 1]),
    retain_available=st.just(0),
    maximum_packet_size=u32,
    assigned_client_id=text,
    topic_alias_maximum=u16,
    reason_string=text,
    user=pairs,
    wildcard_available=st.just(0),
    subscription_ids_available=st.just(0),
    shared_available=st.just(0),
    server_keep_alive=u16,
    response_information=text,
    server_reference=text,
    authentication_method=text,
)


def _for(version: int, five: st.SearchStrategy[Properties]) -> st.SearchStrategy[Properties]:
    return five if version == MQTT_5 else st.just(NO_PROPERTIES)


def wills(version: int) -> st.SearchStrategy[p.Will]:
    return st.builds(
        p.Will, topic=topics, payload=data, qos=qos, retain=flags, properties=_for(version, will_properties)
    )


@st.composite
def connects(draw: st.DrawFn, version: int) -> p.Connect:
    username = draw(st.none() | text)
    password = draw(st.none() | data) if username is not None or version == MQTT_5 else None
    return p.Connect(
        version=version,
        client_id=draw(text),
        clean_start=draw(flags),
        keep_alive=draw(st.integers(0, 65_535)),
        username=username,
        password=password,
        will=draw(st.none() | wills(version)),
        properties=draw(_for(version, connect_properties)),
    )


@st.composite
def publishes(draw: st.DrawFn, version: int) -> p.Publish:
    level = draw(qos)
    members = dict(publish_members, topic_alias=u16)
    members["subscription_ids"] = st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple)
    return p.Publish(
        topic=draw(topics),
        payload=draw(data),
        qos=level,
        retain=draw(flags),
        dup=draw(flags) if level else False,
        packet_id=draw(ids) if level else None,
        properties=draw(_for(version, properties(**members))),
    )


def acknowledgements(version: int) -> st.SearchStrategy[Packet]:
    answers = [0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99] if version == MQTT_5 else [0]
    releases = [0, 0x92] if version == MQTT_5 else [0]
    members = _for(version, answer_properties)
    kinds: list[st.SearchStrategy[Packet]] = [
        st.builds(p.PubAck, ids, st.sampled_from(answers), members),
        st.builds(p.PubRec, ids, st.sampled_from(answers), members),
        st.builds(p.PubRel, ids, st.sampled_from(releases), members),
        st.builds(p.PubComp, ids, st.sampled_from(releases), members),
    ]
    return st.one_of(kinds)


def subscribes(version: int) -> st.SearchStrategy[p.Subscribe]:
    option = flags if version == MQTT_5 else st.just(False)
    handling = qos if version == MQTT_5 else st.just(0)
    one = st.builds(p.Filter, filters, qos, option, option, handling)
    identifier = st.lists(st.integers(1, 268_435_455), max_size=1).map(tuple)
    members = _for(version, properties(user=pairs, subscription_ids=identifier))
    return st.builds(p.Subscribe, ids, st.lists(one, min_size=1, max_size=4).map(tuple), members)


def _codes(*codes: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from(codes), min_size=1, max_size=4).map(tuple)


def packets(version: int) -> st.SearchStrategy[Packet]:
    """Any packet that one side may send the other."""
    five = version == MQTT_5
    answers = _for(version, answer_properties)
    refusals = [0, 0x84, 0x85, 0x86, 0x87, 0x88]
    kinds: list[st.SearchStrategy[Any]] = [
        connects(version),
        st.sampled_from(refusals).flatmap(
            lambda code: st.builds(
                p.ConnAck,
                flags if code == 0 else st.just(False),
                st.just(code),
                _for(version, connack_properties),
            )
        ),
        publishes(version),
        acknowledgements(version),
        subscribes(version),
        st.builds(p.SubAck, ids, _codes(0, 1, 2, 0x80, 0x87, 0x8F) if five else _codes(0, 1, 2, 0x80), answers),
        st.builds(
            p.Unsubscribe,
            ids,
            st.lists(filters, min_size=1, max_size=4).map(tuple),
            _for(version, properties(user=pairs)),
        ),
        st.builds(p.UnsubAck, ids, _codes(0, 0x11, 0x80) if five else st.just(()), answers),
        st.just(p.PingReq()),
        st.just(p.PingResp()),
    ]
    if five:
        leaving = properties(session_expiry=u32, server_reference=text, reason_string=text, user=pairs)
        kinds.append(st.builds(p.Disconnect, st.sampled_from([0, 4, 0x81, 0x8B, 0x93]), leaving))
        naming = properties(reason_string=text, user=pairs, authentication_method=text)
        kinds.append(st.builds(p.Auth, st.sampled_from([0, 0x18, 0x19]), naming))
    else:
        kinds.append(st.just(p.Disconnect()))
    return st.one_of(kinds)


versions = st.sampled_from([MQTT_3_1_1, MQTT_5])
versioned = versions.flatmap(lambda version: st.tuples(st.just(version), packets(version)))
