"""Checks the campaign file: its expansion, its refusals, and that docs/campaigns.md tells the truth about both."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ledger_process import run_ledger

from ledger.analysis.campaign import CampaignEntry, CampaignFile, milli, millionths, parse_campaign
from ledger.errors import InputError
from ledger.record_files import parse_yaml
from ledger.records import REGIMES

GUIDE = Path(__file__).parents[2] / "docs" / "campaigns.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```\s+This seals (\d+) forecasts", GUIDE.read_text(encoding="utf-8"), re.DOTALL)

ENTRY: dict[str, Any] = {"shape": {"M": 64, "N": 64, "K": 64}, "regime": "compute-bound", "pct": 60}
TOP: dict[str, Any] = {"campaign": "c", "kernel": "matmul", "hardware": "cpu", "dtype": "fp32"}


def expand(**changes: Any) -> Any:
    return parse_campaign({**TOP, "cells": [{**ENTRY, **changes}]}, what="c.yaml")[1]


@pytest.mark.parametrize(("text", "count"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_of_the_guide_expand_to_what_it_says(text: str, count: str):
    campaign, requests = parse_campaign(parse_yaml(text.encode(), what="guide"), what="guide")
    assert len(requests) == int(count)
    assert campaign.campaign in text


def test_example_of_the_guide_seals_in_one_commit(tmp_path: Path):
    ((text, count),) = EXAMPLES
    (tmp_path / "campaign.yaml").write_text(text, encoding="utf-8")
    names = {f"GIT_{who}_{what}": "c@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join(filter(None, [str(GUIDE.parent.parent), os.environ.get("PYTHONPATH")]))

    def ledger(*arguments: str) -> str:
        done = run_ledger(*arguments, cwd=tmp_path, env={**os.environ, **names, "PYTHONPATH": path})
        done.check_returncode()
        return done.stdout

    ledger("init", ".")
    (seal,) = json.loads(ledger("predict", "--from", "campaign.yaml", "--json"))
    listed = ["git", "show", "--name-only", "--format=", "HEAD"]
    brought = subprocess.run(listed, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert all(path.startswith("predictions/") for path in brought)
    record = json.loads((tmp_path / seal["path"]).read_bytes())
    assert len(record["cells"]) == int(count)
    assert record["campaign"] == "skinny_on_h200"
    assert all(cell["pins"] == {"torch": "==2.11.*"} for cell in record["cells"])
    assert [path for path in brought if path.endswith(".json")] == [seal["path"]]


def test_guide_has_an_example_and_names_every_key_and_regime():
    assert len(EXAMPLES) == 1
    text = GUIDE.read_text(encoding="utf-8")
    fields = {field.alias or name for name, field in CampaignEntry.model_fields.items()}
    for key in {*CampaignFile.model_fields, *fields, *REGIMES}:
        assert f"`{key}`" in text, key


def test_grid_turns_the_last_key_fastest_within_each_dtype():
    requests = expand(dtype=["fp32", "fp16"], shape={"M": [1, 8], "N": 64, "K": [16, 32]})
    assert [(r.dtype, r.shape["M"], r.shape["K"]) for r in requests] == [
        ("fp32", 1, 16), ("fp32", 1, 32), ("fp32", 8, 16), ("fp32", 8, 32),
        ("fp16", 1, 16), ("fp16", 1, 32), ("fp16", 8, 16), ("fp16", 8, 32),
    ]  # fmt: skip


def test_entry_overrides_the_top():
    (request,) = expand(kernel="rmsnorm_matmul", hardware="h200", dtype="bf16")
    assert (request.kernel, request.hardware, request.dtype) == ("rmsnorm_matmul", "h200", "bf16")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pct": 0}, "pct"),
        ({"pct": 100.5}, "pct"),
        ({"regime": "memory-bound"}, "regime"),
        ({"dtype": "fp12"}, "dtype"),
        ({"shape": {"M": 0, "N": 64, "K": 64}}, "shape.M"),
        ({"shape": {"M": [], "N": 64, "K": 64}}, "shape.M"),
        ({"shape": {}}, "shape"),
        ({"prob": {"warp-bound": 1.0}}, "prob"),
        ({"prob": {"hbm-bound": 1.5}}, "prob"),
        ({"colour": "green"}, "colour"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_entry_is_refused_by_its_field(changes: dict[str, Any], said: str):
    with pytest.raises(InputError, match=rf"c\.yaml.*{re.escape(said)}"):
        expand(**changes)


def test_everything_wrong_with_a_file_is_said_in_words():
    bad = {**ENTRY, "hi": 4, "pct": 0, "dtype": ["fp12"]}
    with pytest.raises(InputError) as caught:
        parse_campaign({**TOP, "campaign": "Two Words", "cells": [ENTRY, bad], "colour": "green"}, what="c.yaml")
    said = str(caught.value).split("; also ")
    assert said[0].startswith("c.yaml: campaign: got 'Two Words'; expected a small letter, then")
    assert "cell 2: pct: got 0; expected more than 0" in said
    assert any(one.startswith("cell 2: dtype #1: got 'fp12' (did you mean fp32") for one in said)
    assert any(
        one.startswith("cell 2: key 'hi' (did you mean high?) is not known; expected one of: args, ") for one in said
    )
    assert said[-1].startswith("key 'colour' is not known; expected one of: campaign, ceilings, cells, ")
    assert len(said) == 5


def test_of_many_errors_the_first_are_listed():
    with pytest.raises(InputError, match=r"; also 3 more$"):
        parse_campaign({**TOP, "cells": [{**ENTRY, "pct": 0}] * 8}, what="c.yaml")


@pytest.mark.parametrize("missing", ["kernel", "hardware", "dtype"])
def test_what_neither_entry_nor_top_says_is_asked_for(missing: str):
    top = {key: value for key, value in TOP.items() if key != missing}
    with pytest.raises(InputError, match=f"cell 1: no {missing}; expected one in the entry or at the top"):
        parse_campaign({**top, "cells": [ENTRY]}, what="c.yaml")


@pytest.mark.parametrize("cells", [[], None, {}], ids=["empty", "null", "mapping"])
def test_campaign_without_cells_is_refused(cells: Any):
    with pytest.raises(InputError, match=r"c\.yaml: cells"):
        parse_campaign({**TOP, "cells": cells}, what="c.yaml")


def test_percent_and_probability_keep_the_decimals_that_were_written():
    assert milli(78.005) == 78005
    assert milli(0.1) == 100
    assert millionths({"hbm-bound": 0.7, "latency-bound": 0.3}) == {"hbm-bound": 700_000, "latency-bound": 300_000}
