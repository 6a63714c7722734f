"""Defines how long two versions are timed in turn and what difference is called; a claim seals it as its protocol."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.analysis.claims import COPY_PARAMETERS, INTERLEAVED, error_ppm, known_protocol
from ledger.analysis.protocols import interleaved_protocol_for
from ledger.measure.input_copies import COPIES, NO_COPIES, CopyLimits
from ledger.measure.timer import parameters_of
from ledger.records import Protocol


@dataclass(frozen=True)
class Effort:
    """Say how long a case is timed and what is called.

    least: the smallest change that is called, as a share. target: half-width of both intervals at which timing ends.
    most: the noise beyond which a case without a difference is unclear. fold: of so many rounds in a row the fastest
    counts, because other processes only ever make a round longer. copies: of the input sets, on a GPU.
    """

    warmup_rounds: int
    min_rounds: int
    max_rounds: int
    target: float
    budget_s: float
    least: float
    most: float
    fold: int
    copies: CopyLimits


ON_GPU = Effort(5, 40, 400, target=0.004, budget_s=3.0, least=0.01, most=0.03, fold=1, copies=COPIES)
ON_CPU = Effort(3, 160, 2000, target=0.02, budget_s=15.0, least=0.03, most=0.10, fold=4, copies=NO_COPIES)


def claim_protocol(implementation: str, claims: int) -> Protocol:
    """Return how each of some claims that are sealed together is timed."""
    effort = ON_CPU if implementation == "torch-cpu" else ON_GPU
    cold = parameters_of(interleaved_protocol_for(implementation))
    return Protocol(
        name=INTERLEAVED,
        parameters={
            "footprint_l2_multiple": cold.footprint_l2_multiple,
            "footprint_min_bytes": cold.footprint_min_bytes,
            "sample_elements": cold.sample_elements,
            "warmup_rounds": effort.warmup_rounds,
            "min_rounds": effort.min_rounds,
            "max_rounds": effort.max_rounds,
            "target_ppm": round(1e6 * effort.target),
            "budget_ms": round(1e3 * effort.budget_s),
            "least_ppm": round(1e6 * effort.least),
            "most_ppm": round(1e6 * effort.most),
            "fold": effort.fold,
            "error_ppm": error_ppm(claims),
            "copies_l2_multiple": effort.copies.l2_multiple,
            "copies_rotation_ms": effort.copies.rotation_ms,
        },
    )


def follows(protocol: Protocol, implementation: str, claims: int) -> bool:
    """Tell whether this version times by the protocol of one of some claims that were sealed together.

    It must be as new claims seal it, but on a GPU as many copies of input sets are made as it asks for.
    """
    own = claim_protocol(implementation, claims).parameters
    free = COPY_PARAMETERS if own["copies_l2_multiple"] else frozenset[str]()
    sealed = protocol.parameters
    return known_protocol(protocol) and all(sealed[name] == own[name] for name in sealed.keys() - free)


def effort_of(protocol: Protocol) -> Effort:
    """Return the effort that a protocol of a claim asks for."""
    values = protocol.parameters
    return Effort(
        values["warmup_rounds"],
        values["min_rounds"],
        values["max_rounds"],
        target=values["target_ppm"] / 1e6,
        budget_s=values["budget_ms"] / 1e3,
        least=values["least_ppm"] / 1e6,
        most=values["most_ppm"] / 1e6,
        fold=values["fold"],
        # interleaved/1 makes none.
        copies=CopyLimits(values.get("copies_l2_multiple", 0), values.get("copies_rotation_ms", 0)),
    )
