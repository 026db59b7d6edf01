"""What a GPU alone shows: each provider there gives what the CPU gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from calibrators import CALIBRATORS, Calibrator
from service.errors import ConfigurationError
from service.inference.chain import Chain
from service.inference.pinned import pinned_array
from service.inference.providers import resolve_provider
from service.inference.session import Session

from ..conftest import Digits, InThread

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["cuda", "cuda-graphs", "tensorrt"])
def there(request: pytest.FixtureRequest, digits: Digits) -> Session:
    try:
        return Session(digits.bundle, provider=request.param, threads=1, max_batch_size=6)
    except ConfigurationError as error:
        if request.param != "tensorrt":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def here(digits: Digits) -> Session:
    return Session(digits.bundle, provider="cpu", threads=1)


def test_auto_is_the_gpu() -> None:
    assert resolve_provider("auto") == "cuda"


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 6, 13])
def test_any_number_of_rows_gives_the_logits_of_the_cpu(
    there: Session, here: Session, digits: Digits, rows: int
) -> None:
    """Twice, with other rows between: a replayed graph must read the buffers anew."""
    images = digits.images[:rows]
    for _ in range(2):
        there.run(digits.images[20:33])
        np.testing.assert_allclose(there.run(images), here.run(images) if rows else np.empty((0, 10)), atol=1e-3)


@pytest.mark.parametrize(
    "method", ["temperature", "dirichlet", "isotonic", "histogram", "structured_vector", "venn_abers"]
)
def test_a_calibrator_there_gives_what_it_gives_here(
    there: Session, here: Session, digits: Digits, method: str
) -> None:
    fit = digits.bundle.reference.fit
    calibrator: Calibrator = CALIBRATORS[method]().fit(fit.logits, fit.labels)
    logits, probabilities = Chain(there, calibrator).run(digits.images[:17])
    np.testing.assert_allclose(probabilities, calibrator.predict_proba(logits), rtol=0, atol=1e-6)
    if method in ("temperature", "dirichlet"):  # without steps, where the last bit of a logit decides
        _, expected = Chain(here, calibrator).run(digits.images[:17])
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-4)


def test_pinned_memory_is_zero_and_may_be_written() -> None:
    memory = pinned_array((3, 2), np.float32)
    assert not memory.any()
    memory[1] = 7
    assert memory.tolist() == [[0, 0], [7, 7], [0, 0]]


def test_a_service_on_the_gpu_answers_as_one_on_the_cpu(start: Callable[..., InThread], digits: Digits) -> None:
    plain = start(provider="cpu")
    expected = plain.predict(digits.images[:40])
    plain.close()
    service = start(provider="cuda")
    assert service.http.get("/v1/models").json()["items"][0]["provider"] == "cuda"
    for one, other in zip(service.predict(digits.images[:40]), expected, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
    service.activate(service.propose_policy())
    assert len(service.predict(digits.images[:40])) == 40
