"""Patent-like texts, written by the project itself: nothing in them is copied from a patent.

Every text is drawn from small tables of words, one table for each CPC section, with `random.Random` only, so
that a seed gives the same texts on every machine. Two properties make the texts usable as benchmarks:

* The abstract is a function of the description. The description also names another device, another part and
  another material (prior art, an embodiment), so a summary has to pick the right content words.
* Neighbouring sections share words, and a few patents lie between two sections, so that no classifier can be
  right every time. A score of exactly 100 % would say more about the texts than about the model.

Abstracts are telegraphic (no articles, hardly any function word): a text of function words only then shares
almost nothing with them, which keeps ROUGE-1 honest.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SECTIONS = "ABCDEFGH"
"""The CPC sections, in the order of the class labels 0..7."""

STRAY_RATE = 0.10
"""Probability that one content word of an ordinary patent comes from a neighbouring section."""

BETWEEN_RATE = 0.08
"""Probability that a patent lies between two sections: each content word is a coin toss between them."""


@dataclass(frozen=True)
class Patent:
    """One synthetic patent; every text is a single line."""

    title: str
    description: str
    abstract: str
    section: str


@dataclass(frozen=True)
class Vocabulary:
    """What the patents of one section talk about."""

    devices: tuple[str, ...]
    parts: tuple[str, ...]
    materials: tuple[str, ...]
    purposes: tuple[str, ...]


@dataclass(frozen=True)
class Invention:
    """The content of one patent, before it is put into sentences.

    ``parts`` are the three that the invention consists of; everything named ``other_*`` is mentioned in the
    description only.
    """

    quality: str
    device: str
    purpose: str
    parts: tuple[str, str, str]
    material: str
    action: str
    effect: str
    other_device: str
    other_part: str
    other_material: str


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


def _vocabulary(devices: str, parts: str, materials: str, purposes: str) -> Vocabulary:
    return Vocabulary(_phrases(devices), _phrases(parts), _phrases(materials), _phrases(purposes))


VOCABULARIES: dict[str, Vocabulary] = {
    "A": _vocabulary(
        "toothbrush, mattress, harvester, inhaler, syringe, helmet, sandal, cradle, oven, catheter,"
        " seeder, toy",
        "handle, strap, cushion, needle, nozzle, bristle, pouch, mouthpiece, buckle, blade, lid, insole",
        "cotton, leather, foam, silicone, gelatin, rubber, wax, nylon, latex, cork, linen, sugar",
        "treating wounds, feeding infants, harvesting crops, cleaning teeth, milking cattle, baking bread,"
        " relieving pain, protecting knees, injecting drugs, planting seeds, brewing coffee, coating pills",
    ),
    "B": _vocabulary(
        "conveyor, gripper, trailer, mixer, press, crane, bicycle, grinder, separator, printer, stacker,"
        " drill",
        "roller, belt, chassis, nozzle, blade, wheel, clamp, tray, chuck, hook, drum, spindle",
        "steel, rubber, nylon, aluminium, plywood, carbide, polyester, cardboard, foam, resin, sand, glass",
        "sorting parcels, lifting pallets, mixing powders, cutting sheets, grinding lenses, printing labels,"
        " coating panels, steering vehicles, braking wagons, packing bottles, spraying paint, drilling holes",
    ),
    "C": _vocabulary(
        "reactor, catalyst, electrolyzer, fermenter, furnace, distiller, detergent, adhesive, scrubber,"
        " alloy,"
        " separator, digester",
        "drum, membrane, condenser, electrode, inlet, column, stirrer, tray, crucible, vessel, filter,"
        " nozzle",
        "zeolite, platinum, resin, silica, ethanol, ammonia, titanium, graphite, polymer, glass, sulfur,"
        " starch",
        "purifying water, making peptides, refining oil, fermenting sugar, smelting ore, removing sulfur,"
        " etching glass, growing crystals, neutralizing acids, coating panels, dissolving salts,"
        " mixing powders",
    ),
    "D": _vocabulary(
        "loom, spinner, washer, calender, pulper, dryer, winder, knitter, braider, digester, carder, ladder",
        "bobbin, shuttle, needle, roller, comb, drum, heddle, reed, spool, vessel, filter, frame",
        "cotton, wool, silk, polyester, cellulose, viscose, hemp, starch, linen, lignin, polymer, felt",
        "weaving fabric, spinning yarn, dyeing cloth, bleaching pulp, knitting sleeves, washing laundry,"
        " sewing seams, drying paper, winding thread, pressing felt, combing wool, purifying water",
    ),
    "E": _vocabulary(
        "scaffold, shutter, door, lock, excavator, bridge, pavement, rig, window, ladder, faucet, valve",
        "hinge, beam, latch, bolt, frame, panel, bracket, anchor, key, column, rail, spool",
        "concrete, plywood, timber, steel, glass, gypsum, asphalt, brick, clay, gravel, aluminium, felt",
        "building walls, locking doors, digging trenches, drilling wells, shading windows, draining roads,"
        " lining tunnels, supporting roofs, sealing joints, climbing towers, flushing toilets,"
        " heating floors",
    ),
    "F": _vocabulary(
        "turbine, pump, boiler, engine, valve, compressor, bearing, refrigerator, rifle, burner, lamp, clock",
        "piston, shaft, rotor, bolt, flange, manifold, seal, spring, cylinder, impeller, housing, barrel",
        "iron, bronze, graphite, steel, ceramic, copper, brass, tungsten, basalt, gypsum, magnesium, helium",
        "pumping fuel, burning gas, compressing air, cooling liquids, igniting powder, damping vibration,"
        " sealing joints, recovering heat, greasing gears, lighting rooms, heating floors, measuring flow",
    ),
    "G": _vocabulary(
        "spectrometer, camera, clock, thermometer, scanner, processor, microscope, calculator, radar,"
        " display,"
        " recorder, amplifier",
        "lens, sensor, mirror, detector, memory, housing, laser, dial, prism, spring, antenna, screen",
        "quartz, glass, silicon, ceramic, germanium, sapphire, brass, polymer, silver, indium, gold, mica",
        "measuring flow, counting coins, storing data, imaging cells, tracking aircraft, reading barcodes,"
        " encrypting messages, training networks, detecting smoke, drawing maps, lighting rooms,"
        " recording sound",
    ),
    "H": _vocabulary(
        "transformer, battery, motor, inverter, connector, transistor, amplifier, generator, modulator,"
        " charger,"
        " router, display",
        "coil, electrode, terminal, capacitor, stator, winding, antenna, cable, fuse, sensor, diode, strap",
        "copper, lithium, silicon, gold, mica, ferrite, gallium, silver, tin, nickel, cobalt, silicone",
        "charging phones, converting current, storing energy, sending signals, switching loads,"
        " relieving pain,"
        " shielding wires, encrypting messages, balancing grids, storing data, powering lights, driving fans",
    ),
}

QUALITIES = _phrases(
    "portable, compact, modular, rotary, automatic, flexible, hollow, sealed, folding, magnetic, stackable,"
    " wireless, reversible, layered, heated, tubular"
)
ACTIONS = _phrases(
    "drives, carries, cools, guides, covers, holds, moves, controls, feeds, locks, turns, presses"
)
EFFECTS = _phrases(
    "reducing noise, saving energy, preventing leakage, lowering cost, improving accuracy, avoiding wear,"
    " limiting weight, extending life, increasing speed, easing cleaning, stopping corrosion, saving space"
)
DRAWBACKS = _phrases(
    "is heavy, is expensive, breaks early, takes up much room, needs frequent service, cannot be adjusted"
)
OPENINGS = (
    "The present invention relates to {quality_device} for {purpose}.",
    "This application concerns {quality_device} for {purpose}.",
    "Described herein is {quality_device} for {purpose}.",
    "The disclosure is directed to {quality_device} for {purpose}.",
)
BACKGROUNDS = (
    "In the prior art, {other_device} with {other_part} is often used, but such a solution {drawback}.",
    "It is known to employ {other_device} having {other_part}, which however {drawback}.",
    "Earlier proposals rely on {other_device} and {other_part}; that arrangement {drawback}.",
)
STRUCTURES = (
    "According to the invention, the {device} comprises {first}, {second} and {third} made of {material}.",
    "To overcome this, the {device} is provided with {first}, {second} and {third} made of {material}.",
    "The {device} of the invention has {first}, {second} and {third} made of {material}.",
)
OPERATIONS = (
    "In operation, the {first} {action} the {second}, thereby {effect}.",
    "During use, the {first} {action} the {second}, thereby {effect}.",
    "When the {device} is running, the {first} {action} the {second}, thereby {effect}.",
)
EMBODIMENTS = (
    "In one embodiment, {other_part} of {other_material} may be added on one side.",
    "In a further embodiment, the {third} is joined to {other_part} of {other_material}.",
    "Optionally, a layer of {other_material} lies between the {third} and {other_part}.",
)


def write_patents(count: int, seed: int) -> list[Patent]:
    """Write ``count`` patents; sections are drawn uniformly, texts may repeat only by chance."""
    random = Random(seed)
    return [_write_patent(random, random.choice(SECTIONS)) for _ in range(count)]


def _write_patent(random: Random, section: str) -> Patent:
    invention = _invent(random, section)
    return Patent(
        title=_capitalized(f"{invention.quality} {invention.device} for {invention.purpose}"),
        description=_describe(random, invention),
        abstract=_summarize(invention),
        section=section,
    )


def _invent(random: Random, section: str) -> Invention:
    """Draw the content; each word comes from the section's table or, seldom, from a neighbour's."""
    neighbour = _neighbour(random, section)
    stray = 0.5 if random.random() < BETWEEN_RATE else STRAY_RATE

    def vocabulary() -> Vocabulary:
        return VOCABULARIES[neighbour if random.random() < stray else section]

    device, other_device = _distinct(random, [vocabulary().devices for _ in range(2)])
    first, second, third, other_part = _distinct(random, [vocabulary().parts for _ in range(4)])
    material, other_material = _distinct(random, [vocabulary().materials for _ in range(2)])
    return Invention(
        quality=random.choice(QUALITIES),
        device=device,
        purpose=random.choice(vocabulary().purposes),
        parts=(first, second, third),
        material=material,
        action=random.choice(ACTIONS),
        effect=random.choice(EFFECTS),
        other_device=other_device,
        other_part=other_part,
        other_material=other_material,
    )


def _neighbour(random: Random, section: str) -> str:
    """The section before or after, where A follows H."""
    position = SECTIONS.index(section) + random.choice((-1, 1))
    return SECTIONS[position % len(SECTIONS)]


def _distinct(random: Random, tables: list[tuple[str, ...]]) -> list[str]:
    """One word from each table, no word twice (tables of neighbours overlap)."""
    chosen: list[str] = []
    for table in tables:
        chosen.append(random.choice([word for word in table if word not in chosen]))
    return chosen


def _describe(random: Random, invention: Invention) -> str:
    """Five sentences in a fixed order, each in one of several wordings; 60 to 80 words."""
    first, second, third = invention.parts
    opening = random.choice(OPENINGS).format(
        quality_device=_with_article(f"{invention.quality} {invention.device}"), purpose=invention.purpose
    )
    background = random.choice(BACKGROUNDS).format(
        other_device=_with_article(invention.other_device),
        other_part=_with_article(invention.other_part),
        drawback=random.choice(DRAWBACKS),
    )
    structure = random.choice(STRUCTURES).format(
        device=invention.device,
        first=_with_article(first),
        second=_with_article(second),
        third=_with_article(third),
        material=invention.material,
    )
    operation = random.choice(OPERATIONS).format(
        device=invention.device, first=first, second=second, action=invention.action, effect=invention.effect
    )
    embodiment = random.choice(EMBODIMENTS).format(
        third=third,
        other_part=_with_article(invention.other_part),
        other_material=invention.other_material,
    )
    return " ".join((opening, background, structure, operation, embodiment))


def _summarize(invention: Invention) -> str:
    """One telegraphic sentence of content that the description states; "for" is its only function word."""
    first, second, third = invention.parts
    return _capitalized(
        f"{invention.quality} {invention.device} for {invention.purpose}, comprising {first}, {second},"
        f" {invention.material} {third}; {first} {invention.action} {second}, {invention.effect}."
    )


def _with_article(phrase: str) -> str:
    # By letter, not by sound: the tables hold no word such as "unit" where the two differ.
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def _capitalized(text: str) -> str:
    """Only the first letter changes; `str.capitalize` would lower the others."""
    return text[0].upper() + text[1:]
