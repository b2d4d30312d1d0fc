"""What the API answers, as OpenAPI describes it. Times are RFC 3339 with milliseconds and `Z`."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from devices.model import MAX_NOTE_CHARACTERS, MAX_RATE
from engine.limits import NAME_PATTERN

Name = Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")]
ID_PATTERN: Final = "[a-z0-9]{26}"
# Thirty years: what is subtracted from the time of day has to leave a date.
MAX_AGE_SECONDS: Final = 10**9
KEY_PATTERN: Final = f"{NAME_PATTERN}/{NAME_PATTERN}"
RunId = Annotated[str, Field(pattern=rf"^{ID_PATTERN}$")]
RunStatus = Literal["pending", "running", "suspended", "succeeded", "failed", "cancelled", "damaged"]
StepStatus = Literal["pending", "running", "suspended", "succeeded", "failed", "cancelled", "skipped"]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


# -- workflows ---------------------------------------------------------------------------------------------------


class DefinitionProblem(_Answer):
    step: str
    pointer: str
    line: int
    message: str
    hint: str


class WorkflowSummary(_Answer):
    name: str
    description: str
    keys: list[str]
    file: str
    problems: list[DefinitionProblem]


class WorkflowList(_Answer):
    """`problems` lists by file those that hold no definition in force."""

    workflows: list[WorkflowSummary]
    next: str | None
    problems: dict[str, list[DefinitionProblem]]


class DependencyView(_Answer):
    name: str
    condition: str


class StepOutline(_Answer):
    name: str
    type: str
    key: str | None
    dependsOn: list[DependencyView]  # noqa: N815  as in the file


class JobOutline(_Answer):
    name: str
    dependsOn: list[DependencyView]  # noqa: N815  as in the file
    steps: list[StepOutline]


class WorkflowView(WorkflowSummary):
    trigger: bool
    inputs: dict[str, Any] | None
    jobs: list[JobOutline]


class ValidationResult(_Answer):
    ok: bool
    problems: list[DefinitionProblem]


class StartRun(_Request):
    """`inputs` as the workflow's own schema asks."""

    inputs: dict[str, Any] = Field(default_factory=dict)


class Started(_Answer):
    run: str


# -- runs --------------------------------------------------------------------------------------------------------


class RunSummary(_Answer):
    """`damaged`: the run's log cannot be read; `workflow` and `by` are empty where not even its first event can be."""

    run: str
    workflow: str
    status: RunStatus
    created: str
    ended: str | None
    by: str


class RunPage(_Answer):
    """Newest first; `next` is the cursor of the next page, null at the end, and not before."""

    runs: list[RunSummary]
    next: str | None


class StepError(_Answer):
    code: str
    message: str


class StepView(_Answer):
    """`guarded`: it was skipped because its guard is true, not because of what it depends on."""

    name: str
    status: StepStatus
    guarded: bool
    attempt: int
    outputs: Any | None
    error: StepError | None
    wait: str | None


class JobView(_Answer):
    name: str
    status: StepStatus
    steps: list[StepView]


class RunView(RunSummary):
    jobs: list[JobView]


class EventView(_Answer):
    seq: int
    at: str
    event: str


class EventPage(_Answer):
    """Events in order. `ended`: the run had ended when they were read; `next`: pass it as `after`."""

    events: list[EventView]
    next: int
    ended: bool


class Retry(_Request):
    step: str | None = None


class RemoveOld(_Request):
    older_than_seconds: Annotated[float, Field(ge=0, le=MAX_AGE_SECONDS)]


class Removed(_Answer):
    runs: list[str]


# -- waits -------------------------------------------------------------------------------------------------------


class OpenWait(_Answer):
    wait: str
    workflow: str
    key: str | None
    run: str
    job: str
    step: str
    deadline: str
    opened: str


class HeldSignal(_Answer):
    workflow: str
    key: str
    receipt: str
    until: str
    sender: str


class DamagedRecord(_Answer):
    """`workflow` is empty where only the record would say it; then whoever may read all workflows sees it."""

    record: str
    workflow: str


class WaitList(_Answer):
    """`damaged`: records that could not be read, so that a wait or a held signal may be missing here."""

    waits: list[OpenWait]
    pending: list[HeldSignal]
    damaged: list[DamagedRecord]
    next: str | None


class KeyList(_Answer):
    keys: list[dict[str, Any]]
    next: str | None


# -- signals -----------------------------------------------------------------------------------------------------


class ReceiptView(_Answer):
    """What a sender gets. From `state` on only those who may read the workflow see it."""

    v: int
    ok: bool
    code: int
    id: str
    receipt: str
    at: str
    state: Literal["delivered", "held", "expired", "superseded"] | None = None
    duplicate: bool | None = None
    held_until: str | None = None
    wait: str | None = None
    run: str | None = None
    job: str | None = None
    step: str | None = None


# -- devices -----------------------------------------------------------------------------------------------------


class RateModel(BaseModel):
    """How often, in events a second, and how many at once."""

    model_config = ConfigDict(extra="forbid")

    per_second: Annotated[float, Field(gt=0, le=MAX_RATE)]
    burst: Annotated[int, Field(ge=1, le=MAX_RATE)]


class DeviceLimits(BaseModel):
    """Where a device's limits differ from everybody's; null: as for everybody."""

    model_config = ConfigDict(extra="forbid")

    signals: RateModel | None = None
    runs: RateModel | None = None
    reads: RateModel | None = None
    connects: RateModel | None = None


class AddDevice(_Request):
    device: str
    grants: list[str] = Field(default_factory=list)
    limits: DeviceLimits = Field(default_factory=DeviceLimits)
    note: Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS)] = ""


class GrantText(_Request):
    grant: str


class DeviceView(_Answer):
    """`connections` and `last_seen` are what this instance knows; certificates made until `revoked` are void."""

    device: str
    state: Literal["active", "disabled", "deleted"]
    grants: list[str]
    limits: DeviceLimits
    tokens: int
    note: str
    changed: str
    revoked: str | None
    connections: int
    last_seen: str | None


class SecretView(_Answer):
    """A use is noted while there are two tokens; `used_since`: of the older one, first since the rotation began."""

    made: str | None
    first_used: str | None
    used_since: str | None


class DeviceDetail(DeviceView):
    secrets: list[SecretView]


class DeviceList(_Answer):
    devices: list[DeviceView]
    next: str | None


class IssuedToken(DeviceView):
    """The token is shown here once and kept nowhere."""

    token: str


class ExportFile(_Answer):
    """A file; a secret one holds verifiers of tokens."""

    name: str
    text: str
    secret: bool


class BrokerExport(_Answer):
    """A broker's users and access rules, and which devices it will not know."""

    broker: str
    files: list[ExportFile]
    warnings: list[str]


# -- audit and the rest ------------------------------------------------------------------------------------------


class AuditEventView(_Answer):
    time: str
    instance: str
    action: str
    result: str
    principal: str


class AuditPage(_Answer):
    """Oldest first. `next` is a cursor, also at the end: more may come. `more`: there is more now."""

    events: list[AuditEventView]
    next: str
    more: bool


class ChainFlaw(_Answer):
    kind: Literal["changed", "removed", "reordered", "cut_off"]
    instance: str
    seq: int
    text: str


class ChainCheck(_Answer):
    """`unvouched`: instances that were killed, so that nobody says what their last event was."""

    ok: bool
    events: int
    chains: int
    flaws: list[ChainFlaw]
    unvouched: list[str]


class StoryLine(_Answer):
    time: str
    text: str
    action: str


class StoryCause(_Answer):
    """`cause` is a stable word; `hint` says what to do."""

    cause: str
    text: str
    hint: str


class StoryView(_Answer):
    """What happened to one signal, run or key, in order, and why nothing came of it if nothing did."""

    about: str
    kind: Literal["receipt", "run", "key"]
    story: list[StoryLine]
    causes: list[StoryCause]
    conclusion: str


class InstanceView(_Answer):
    instance: str
    last_beat: str


class Doors(_Answer):
    """Where this gateway listens, empty when a command acts by itself; and all instances that share its store."""

    instance: str
    doors: dict[str, str]
    time: str
    instances: list[InstanceView]


class Done(_Answer):
    ok: bool = True
