"""Holds attacks on trust levels and roofs, each beside its honest twin; attacks.py enters them into its corpus."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from attacks import KEYS, _allow, _key, _stamp, attack, authority, begin, started, witnessed
from authority import next_second
from builders import KERNEL_SOURCE, Ledger, Seal, forecast, measurement, series, timing

from ledger.analysis.protocols import COLD_GRAPH
from ledger.analysis.work_model import elements
from ledger.canonical import encode, id_input, object_id, object_path, record_id, record_path
from ledger.evidence.timestamps import stamp
from ledger.operations import OPERATIONS
from ledger.philox_inputs import derive_key, sample_positions
from ledger.record_files import load_hardware
from ledger.records import Forecast, Hardware, Measurement, Prediction, Samples, Work
from ledger.roofline import DTYPE_BYTES, roof_of, time_lower_bound_s

# Values of samples

VALUES = "values of samples"


def of_operation(
    ledger: Ledger, operation: str, shape: dict[str, int], dtype: str = "fp16", **changes: Any
) -> Forecast:
    """Return a forecast of an operation by a kernel of its name, whose objects are in the index."""
    kernel = operation.partition("/")[0]
    read, written = elements(OPERATIONS[operation], shape)
    made = forecast()
    case = made.case.model_copy(update={"kernel": kernel, "shape": shape, "dtype": dtype})
    sizes = "-".join(f"{key}{size}" for key, size in shape.items())
    fields = {
        "operation": operation,
        "case": case,
        "cell": f"{kernel}-{sizes}-{dtype}",
        "work": Work(flops=written, bytes_read=DTYPE_BYTES[dtype] * read, bytes_written=DTYPE_BYTES[dtype] * written),
        "kernel_sha256": ledger.put_kernel(KERNEL_SOURCE, kernel),
    }
    return made.model_copy(update={**fields, **changes})


def garbage(sealed: Seal, bits: str = "3400") -> Samples:
    """Return samples at the positions that a seal draws, all of one value that nobody computed."""
    made = sealed.forecast
    operation = OPERATIONS[made.operation]
    key = derive_key(seal=sealed.id, cell=made.cell, run=0, anchor=None)
    size = math.prod(operation.output_dims(made.case.shape))
    count = made.protocol.parameters["sample_elements"]
    positions = tuple(sample_positions(j, key=key, size=size) for j in range(count))
    return Samples(dtype=operation.output_dtype(made.case.dtype), positions=positions, bits=(bits,) * count)


def sampling(count: int) -> Any:
    """Return a protocol that takes another number of samples."""
    return COLD_GRAPH.model_copy(update={"parameters": {**COLD_GRAPH.parameters, "sample_elements": count}})


@attack(VALUES, "holds", levels=(0,))
def garbage_that_nobody_recomputes(folder, _canary):
    """Record samples that nobody computed, for an auditor who compares positions only: no level 1."""
    ledger = begin(folder)
    sealed = ledger.seal()
    ledger.measure(sealed, samples=garbage(sealed))
    return ledger.root


@attack(VALUES, "refused", "samples-disagree", recomputed=True)
def garbage_that_is_recomputed(folder, canary):
    """Record samples that nobody computed, for an auditor who recomputes them."""
    return garbage_that_nobody_recomputes(folder, canary)


@attack(VALUES, "holds", recomputed=True, levels=(0,))
def more_samples_than_are_recomputed(folder, _canary):
    """Seal so many samples that they are not recomputed: they hold, named, and reach no level 1."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast(protocol=sampling(5000)))
    ledger.measure(sealed, samples=garbage(sealed))
    return ledger.root


@attack(VALUES, "holds", recomputed=True, levels=(0,))
def axis_too_long_to_recompute(folder, _canary):
    """Seal an axis so long that its sums are not recomputed: they hold, named, and reach no level 1."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast(B=1, H=2**25, O=2))
    ledger.measure(sealed, samples=garbage(sealed), timing=timing(10**9))
    return ledger.root


@attack(VALUES, "holds", recomputed=True, levels=(0,))
def too_few_samples(folder, _canary):
    """Seal eight samples of a large output: too few for level 1."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(protocol=sampling(8))))
    return ledger.root


@attack(VALUES, "holds", recomputed=True, levels=(0,))
def no_samples(folder, _canary):
    """Seal that no samples are taken."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(protocol=sampling(0))))
    return ledger.root


def small_output(folder, _canary):
    """Build the twin: an output of two elements, both among the samples."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(B=1, O=2)))
    return ledger.root


def rows_of_softmax(folder, _canary):
    """Build the twin: a softmax of rows that hold more than one element."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(of_operation(ledger, "softmax/1", {"M": 16, "N": 8})))
    return ledger.root


@attack(VALUES, "holds", twin=rows_of_softmax, recomputed=True, levels=(0,))
def output_that_does_not_depend_on_its_input(folder, _canary):
    """Measure a softmax of rows of one element, which is one whatever the inputs."""
    ledger = begin(folder)
    sealed = ledger.seal(of_operation(ledger, "softmax/1", {"M": 64, "N": 1}))
    ledger.measure(sealed, samples=garbage(sealed, "3c00"))
    return ledger.root


@attack(VALUES, "holds", twin=small_output, recomputed=True, levels=(0,))
def one_sample_of_a_small_output(folder, _canary):
    """Seal sixteen samples of an output of fifteen elements, which miss some: not all of a small output."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(B=1, O=15, protocol=sampling(14))))
    return ledger.root


def eight_bits(dtype: str):
    """Return the builder of an honest measurement whose output is of an eight-bit dtype."""

    def build(folder, _canary):
        ledger = begin(folder)
        ledger.measure(ledger.seal(of_operation(ledger, "vector_add/1", {"N": 4096}, dtype)))
        return ledger.root

    build.__name__ = f"output_of_{dtype}"
    return build


def _garbage_of(dtype: str, bits: str) -> None:
    def build(folder: Path, _canary: Path) -> Path:
        ledger = begin(folder)
        sealed = ledger.seal(of_operation(ledger, "vector_add/1", {"N": 4096}, dtype))
        ledger.measure(sealed, samples=garbage(sealed, bits))
        return ledger.root

    build.__name__ = f"garbage_of_{dtype}"
    attack(VALUES, "refused", "samples-disagree", twin=eight_bits(dtype), recomputed=True)(build)


_garbage_of("int8", "7b")
_garbage_of("fp8_e4m3", "7b")


@attack(VALUES, "refused", "shape-unlike-operation")
def extra_shape_key(folder, _canary):
    """Add a key to the shape, so that neither work nor samples are those of the operation, and seal boundless work."""
    ledger = begin(folder)
    made = forecast()
    case = made.case.model_copy(update={"shape": {**made.case.shape, "X": 1}})
    work = made.work.model_copy(update={"bytes_read": 10**15})
    sealed = ledger.seal(made.model_copy(update={"case": case, "work": work, "cell": f"{made.cell}-X"}))
    ledger.measure(sealed, samples=garbage(sealed), timing=timing(10**16 // 10))
    return ledger.root


# Roofs

ROOFS = "roofs"


def on_h200(profile: Hardware | None = None, path: str = "fp16_tensor", H: int = 64, share: float = 0.5):
    """Return the builder of a ledger measured against a profile of an H200, at a share of the sealed roof."""

    def build(folder: Path, _canary: Path) -> Path:
        ledger = begin(folder)
        hardware = profile or load_hardware("h200")
        data = encode(hardware)
        ledger.write(object_path("predictions", object_id(data)), data)
        made = forecast(B=H, H=H, O=H, roof=roof_of(hardware, path), hardware_sha256=object_id(data))
        case = made.case.model_copy(update={"hardware": hardware.name})
        made = made.model_copy(update={"case": case})
        device = {"name": "NVIDIA H200", "target": "sm_90", "sms": hardware.limits.sms}
        sealed = ledger.seal(made)
        record = measurement(made, seal=sealed.id)
        facts = type(record.device)(**{**dict(record.device), **device})
        ps = int(time_lower_bound_s(made.work, made.roof) * 1e12 / share)
        ledger.measure(sealed, device=facts, timing=series(ps))
        return ledger.root

    return build


def measured_against_the_shipped_profile(folder, canary):
    """Build the twin: the profile that ships with the package, on the path of the dtype."""
    return on_h200()(folder, canary)


def products_on_tensor_cores(folder, canary):
    """Build the twin: a compute-bound product of fp16 on the tensor cores."""
    return on_h200(H=512)(folder, canary)


def slower(hardware: Hardware, kind: str = "datasheet", **changes: Any) -> Hardware:
    """Return a profile with half the bandwidth."""
    ceilings = hardware.ceilings[kind]
    halved = ceilings.dram_bandwidth.model_copy(update={"value": ceilings.dram_bandwidth.value / 2})
    less = {**hardware.ceilings, kind: ceilings.model_copy(update={"dram_bandwidth": halved})}
    return hardware.model_copy(update={"ceilings": less, **changes})


@attack(ROOFS, "flagged", "profile-unlike-shipped", twin=measured_against_the_shipped_profile)
def known_name_with_half_the_bandwidth(folder, canary):
    """Seal a profile named h200 with half of its bandwidth: 47.5% read 95%."""
    return on_h200(slower(load_hardware("h200")), share=0.95)(folder, canary)


@attack(ROOFS, "flagged", "profile-unlike-shipped", twin=measured_against_the_shipped_profile)
def known_device_under_another_name(folder, canary):
    """Give the profile a name of its own, and half of the bandwidth of the device that it describes."""
    return on_h200(slower(load_hardware("h200"), name="mine"), share=0.95)(folder, canary)


@attack(ROOFS, "flagged", "profile-unlike-shipped", twin=measured_against_the_shipped_profile)
def measured_ceilings_of_half_the_bandwidth(folder, canary):
    """Leave the datasheet and seal a burst bandwidth that is half of what this device reaches."""
    return on_h200(slower(load_hardware("h200"), "burst"))(folder, canary)


@attack(ROOFS, "flagged", "profile-unlike-shipped", twin=measured_against_the_shipped_profile)
def known_device_without_a_datasheet(folder, canary):
    """Leave out the datasheet's ceilings, above which a result would be refused."""
    known = load_hardware("h200")
    return on_h200(known.model_copy(update={"ceilings": {"burst": known.ceilings["burst"]}}))(folder, canary)


@attack(ROOFS, "flagged", "path-unlike-dtype", twin=products_on_tensor_cores)
def product_sealed_on_a_slower_path(folder, canary):
    """Seal a compute-bound fp16 product on the fp32 path: 6.4% of the tensor cores read 95%."""
    return on_h200(path="fp32", H=512, share=0.95)(folder, canary)


# Keys and timestamps


@attack(KEYS, "flagged", "witness-missing", twin=witnessed, keys=True, levels=(0,))
def measurement_without_a_token(folder, _canary):
    """Stamp the seal alone, after its measurement: one token proves no order."""
    ledger = begin(folder)
    sealed = ledger.seal()
    ledger.measure(sealed, started_at=started(60))
    _stamp(ledger, sealed.path)
    return ledger.root


@attack(KEYS, "flagged", "witness-late", twin=witnessed, keys=True, levels=(0,))
def seal_stamped_after_its_measurement_began(folder, _canary):
    """Measure first, then stamp the seal and then the measurement."""
    ledger = begin(folder)
    sealed = ledger.seal()
    path = ledger.measure(sealed, started_at=started(-60))
    _stamp(ledger, sealed.path)
    next_second()
    _stamp(ledger, path)
    return ledger.root


@attack(KEYS, "flagged", "witness-late", twin=witnessed, keys=True, levels=(0,))
def start_that_no_calendar_has(folder, _canary):
    """Stamp in order, and let the measurement begin on a day that there is not."""
    ledger = begin(folder)
    sealed = ledger.seal()
    _stamp(ledger, sealed.path)
    next_second()
    _stamp(ledger, ledger.measure(sealed, started_at="2027-13-32T00:00:00Z"))
    return ledger.root


def _stamped(ledger: Ledger, record: Prediction | Measurement, folder: str) -> str:
    """Write a record and a token over it into the index, uncommitted; return the record's id."""
    data = encode(record)
    identity = record_id(type(record), data)
    path = ledger.write(record_path(folder, identity), data)
    token = stamp(id_input(type(record), data), authority("The auditor's choice").url)
    ledger.write(f"{path.removesuffix('.json')}.here.tsr", token)
    return identity


@attack(KEYS, "holds", twin=witnessed, keys=True, levels=(0, 3))
def signatures_made_after_their_key_had_expired(folder, _canary):
    """Stamp both records while the key is valid, and sign their commits when it has expired: no level 2."""
    ledger = begin(folder)
    key = _key(folder.parent / "keys", "mine")
    (folder.parent / "roots.pem").write_bytes(authority("The auditor's choice").root.read_bytes())
    expiry = datetime.now(UTC) + timedelta(seconds=5)
    _allow(folder, key, f'valid-before="{expiry.strftime("%Y%m%d%H%M%SZ")}"')
    sealed = ledger.put_seal()
    seal = _stamped(ledger, sealed.prediction, "predictions")
    next_second()
    staged = ledger.git("write-tree")
    record = measurement(sealed.forecast, seal=seal, started_at=started())
    identity = _stamped(ledger, record, "verifications")
    complete = ledger.git("write-tree")
    assert datetime.now(UTC) < expiry, "the tokens are too late"
    time.sleep((expiry - datetime.now(UTC)).total_seconds() + 1.1)
    for name, value in (("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub"), ("commit.gpgsign", "true")):
        ledger.git("config", name, value)
    for tree, message in ((staged, f"Seal\n\nSeal-Id: {seal}"), (complete, f"Measure\n\nRecord-Id: {identity}")):
        ledger.git("read-tree", tree)
        ledger.commit(message)
    return ledger.root
