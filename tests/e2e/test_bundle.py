"""A hang, its bundle, and the same verdict from the bundle; what the doctor says meanwhile."""

from __future__ import annotations

import json

from tests.e2e.harness import SCOUTD, Site, forked, named, until


def test_a_verdict_is_decided_again_from_its_bundle(site: Site) -> None:
    running = site.watch(forked("--fault", "sleep-forward", "--rank", "2"), stop=False)
    confirmed = until(
        lambda: [v for v in running.verdicts() if v["state"] == "CONFIRMED"], "a confirmed verdict", 90.0
    )
    verdict = confirmed[0]
    file = site.folder / "bundle.tar.gz"
    saved = site.start(SCOUTD, "bundle", verdict["id"][:8], "-o", str(file)).finish(30.0)
    assert saved.code == 0, str(saved)

    doctor = site.ask("doctor")
    (job,) = doctor["jobs"]
    assert job["confirmed"] == "1"
    assert all(limit["suggested_s"] >= 5 for limit in job["limits"])

    running.end()
    again = site.start(SCOUTD, "analyze", str(file), "--json").finish(30.0)
    assert again.code == 0, str(again)
    assert again.err == ""
    told = json.loads(again.out)
    assert named(told) == [2]
    for key in ("id", "job", "generation", "cause", "state", "implicated", "cleared", "summary", "stacks"):
        assert told[key] == verdict[key], key
    site.assert_clean()
