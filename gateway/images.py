"""An image that could not be had: what udocker and the registry said, and whether to try again."""

from http import HTTPStatus

from gateway.jobs import Failure, FailureKind, JobSpec

STATUS = "registry: "
"""How the batch script begins the line with the registry's own answer; 000: there was none."""


def image_failure(words: str, spec: JobSpec) -> Failure:
    """The failure of a job whose image could not be made ready.

    `words` are udocker's, which tells a missing image from a broken registry only now and then,
    and, where the script could ask for it, the registry's HTTP status in a last line.
    """
    told, _, status = words.strip().rpartition(STATUS)
    if not told and STATUS not in words:
        told, status = words, ""
    verdict, retry = _verdict(status.strip(), told)
    image = spec.container.image if spec.container is not None else ""
    sentence = f"The image {image} {verdict}: {' '.join(told.split())[-800:]}"
    return Failure(FailureKind.IMAGE, sentence.rstrip(": "), retry=retry)


def _verdict(status: str, told: str) -> tuple[str, bool]:
    if status == str(HTTPStatus.NOT_FOUND.value):
        return "does not exist in its registry", False
    away = status in {"000", "429"} or status.startswith("5")
    if away or (not status and "curl: (" in told):
        return "could not be fetched, its registry does not answer", True
    if status in {"401", "403"} or "not authorized" in told:
        return "does not exist in its registry, or is not public", False
    return "could not be made ready", True
