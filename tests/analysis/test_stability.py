"""Tests ledger.steady on rounds whose drift and outliers are known."""

from ledger.analysis.stability import steadiness


def test_a_constant_time_is_steady():
    found = steadiness([1000] * 30)
    assert (found.outliers, found.drift, found.words) == ((), 0.0, "0 outliers, drift +0.0%")


def test_one_slow_round_is_an_outlier_and_no_drift():
    found = steadiness([1000, 1001, 999, 1000, 2000, 1000, 1001, 999, 1000])
    assert (found.outliers, found.drift) == ((4,), 0.0)


def test_a_clock_that_falls_is_a_drift():
    # First third 1000 to 1020, last third 1180 to 1200.
    found = steadiness([1000, 1010, 1020, 1080, 1100, 1120, 1180, 1190, 1200])
    assert found.outliers == () and round(found.drift, 4) == round(1190 / 1010 - 1, 4)


def test_one_round_has_nothing_to_drift_from():
    assert steadiness([7]).drift == 0.0
