import pytest

from service.decisions.levels import level_of
from service.errors import InputValueError


def test_all_monitors_together_have_the_level() -> None:
    total = sum(level_of(0.05, k) for k in range(1, 10_001))
    assert 0.05 * 0.9998 < total <= 0.05


@pytest.mark.parametrize(("alpha", "k"), [(0.0, 1), (1.0, 1), (0.05, 0), (0.05, 1.0), (0.05, True)])
def test_what_is_no_level_or_number_is_refused(alpha: float, k: int) -> None:
    with pytest.raises(InputValueError):
        level_of(alpha, k)
