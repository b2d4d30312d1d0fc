"""A workflow's steps as a picture: which comes after which, in layers. Pure geometry; the template draws it.

It is laid out twice from the same places: left to right for a wide screen, top to bottom for a narrow one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

GAP_ALONG: Final = 44
GAP_ACROSS: Final = 14
JOB_PADDING: Final = {"wide": 14, "tall": 8}
JOB_TITLE: Final = 26
MARGIN: Final = 4
WIDE: Final = (178, 56)
TALL: Final = (128, 54)
MAX_CHARACTERS: Final = {"wide": 21, "tall": 14}


@dataclass(frozen=True, slots=True)
class Node:
    """A step in the picture."""

    name: str
    title: str
    note: str
    state: str
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Box:
    """A job: the frame around its steps."""

    name: str
    state: str
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependency, as an SVG path; one that is not on success is drawn dashed."""

    path: str
    condition: str
    title: str


@dataclass(slots=True)
class Picture:
    """All there is to draw, in a view box of this size."""

    orientation: str
    width: int = 0
    height: int = 0
    boxes: list[Box] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Place:
    """A layer, and a lane in it; a layer with fewer lanes than the widest stands in the middle."""

    along: int
    across: float


Outline = Sequence[Mapping[str, Any]]


def pictures(jobs: Outline) -> list[Picture]:
    """Draw jobs as `{name, status, dependsOn, steps: [{name, note, status, dependsOn}]}`, wide and tall."""
    return [_draw(jobs, "wide"), _draw(jobs, "tall")]


def layers(names: Sequence[str], after: Mapping[str, Sequence[str]]) -> dict[str, _Place]:
    """Give each name a layer behind all that it depends on, and a lane of its own in the layer."""
    depth: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in depth:
            depth[name] = 0  # what depends on itself was refused when it was loaded
            depth[name] = 1 + max((of(other) for other in after[name] if other in after), default=-1)
        return depth[name]

    taken: dict[int, int] = {}
    places = {}
    for name in names:
        layer = of(name)
        lane = taken.get(layer, 0)
        taken[layer] = lane + 1
        places[name] = _Place(layer, lane)
    most = max(taken.values(), default=0)
    return {name: _Place(p.along, p.across + (most - taken[p.along]) / 2) for name, p in places.items()}


def _draw(jobs: Outline, orientation: str) -> Picture:
    wide = orientation == "wide"
    size = WIDE if wide else TALL
    along, across = (size[0], size[1]) if wide else (size[1], size[0])
    title = JOB_TITLE if len(jobs) > 1 else 0
    pad = JOB_PADDING[orientation] if len(jobs) > 1 else 0
    inner = {str(job["name"]): _steps_of(job) for job in jobs}
    outer = layers(list(inner), {str(job["name"]): _names(job["dependsOn"]) for job in jobs})
    length = {name: _extent(places, "along", along, GAP_ALONG) + 2 * pad for name, places in inner.items()}
    breadth = {name: _extent(places, "across", across, GAP_ACROSS) + 2 * pad for name, places in inner.items()}
    # The title stands at the top: across the flow when it is wide, along it when it is tall.
    for name in inner:
        (breadth if wide else length)[name] += title
    picture = Picture(orientation)
    starts = _starts(outer, length, breadth)
    for job in jobs:
        name = str(job["name"])
        at_along, at_across = starts[name]
        box = _rectangle(wide, at_along, at_across, length[name], breadth[name])
        if len(jobs) > 1:
            picture.boxes.append(Box(name, str(job["status"]), *box))
        corner = (box[0] + pad, box[1] + pad + title)
        _draw_steps(picture, job, inner[name], corner, (along, across), size)
        picture.width = max(picture.width, box[0] + box[2] + MARGIN)
        picture.height = max(picture.height, box[1] + box[3] + MARGIN)
    _draw_job_edges(picture, jobs)
    return picture


def _draw_steps(  # noqa: PLR0917
    picture: Picture,
    job: Mapping[str, Any],
    places: dict[str, _Place],
    corner: tuple[int, int],
    unit: tuple[int, int],
    size: tuple[int, int],
) -> None:
    wide = picture.orientation == "wide"
    drawn: dict[str, Node] = {}
    for step in job["steps"]:
        place = places[str(step["name"])]
        along, across = place.along * (unit[0] + GAP_ALONG), round(place.across * (unit[1] + GAP_ACROSS))
        x, y = (along, across) if wide else (across, along)
        text = str(step["name"])
        most = MAX_CHARACTERS[picture.orientation]
        title = text if len(text) <= most else text[: most - 1] + "…"
        node = Node(text, title, str(step["note"]), str(step["status"]), corner[0] + x, corner[1] + y, *size)
        drawn[text] = node
        picture.nodes.append(node)
    for step in job["steps"]:
        for dependency in step["dependsOn"]:
            if (start := drawn.get(dependency["name"])) is not None:
                picture.edges.append(_edge(picture, start, drawn[str(step["name"])], dependency))


def _draw_job_edges(picture: Picture, jobs: Outline) -> None:
    boxes = {box.name: box for box in picture.boxes}
    for job in jobs:
        for dependency in job["dependsOn"]:
            if (start := boxes.get(dependency["name"])) is not None:
                picture.edges.append(_edge(picture, start, boxes[str(job["name"])], dependency))


def _edge(picture: Picture, start: Node | Box, end: Node | Box, dependency: Mapping[str, str]) -> Edge:
    if picture.orientation == "wide":
        x1, y1, x2, y2 = start.x + start.width, start.y + start.height // 2, end.x, end.y + end.height // 2
        bend = max(16, (x2 - x1) // 2)
        path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 6} {y2}"
    else:
        x1, y1, x2, y2 = start.x + start.width // 2, start.y + start.height, end.x + end.width // 2, end.y
        bend = max(12, (y2 - y1) // 2)
        path = f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2 - 6}"
    condition = dependency["condition"]
    return Edge(path, condition, f"{end.name} after {start.name} ({condition})")


def _starts(places: dict[str, _Place], length: dict[str, int], breadth: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Put the jobs of each layer behind the longest of the layer before, and beside one another."""
    starts: dict[str, tuple[int, int]] = {}
    along = MARGIN
    widest = max((_breadth_of(layer, places, breadth) for layer in range(len(places))), default=0)
    for layer in range(max((place.along for place in places.values()), default=-1) + 1):
        here = [name for name, place in places.items() if place.along == layer]
        across = MARGIN + (widest - _breadth_of(layer, places, breadth)) // 2
        for name in here:
            starts[name] = (along, across)
            across += breadth[name] + GAP_ACROSS
        along += max((length[name] for name in here), default=0) + GAP_ALONG
    return starts


def _breadth_of(layer: int, places: dict[str, _Place], breadth: dict[str, int]) -> int:
    here = [breadth[name] for name, place in places.items() if place.along == layer]
    return sum(here) + GAP_ACROSS * max(0, len(here) - 1)


def _rectangle(wide: bool, along: int, across: int, length: int, breadth: int) -> tuple[int, int, int, int]:  # noqa: FBT001
    return (along, across, length, breadth) if wide else (across, along, breadth, length)


def _extent(places: dict[str, _Place], axis: str, unit: int, gap: int) -> int:
    count = math.ceil(max((getattr(place, axis) for place in places.values()), default=0) + 1)
    return count * unit + (count - 1) * gap


def _steps_of(job: Mapping[str, Any]) -> dict[str, _Place]:
    steps = [str(step["name"]) for step in job["steps"]]
    return layers(steps, {str(step["name"]): _names(step["dependsOn"]) for step in job["steps"]})


def _names(dependencies: Sequence[Mapping[str, str]]) -> list[str]:
    return [dependency["name"] for dependency in dependencies]
