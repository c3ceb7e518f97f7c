"""No container: the payload runs as it is on the compute node."""

from gateway.jobs import JobSpec
from headgate.problems import Fault, Unprocessable


class PlainRuntime:
    """Runs payloads directly; jobs that name an image are refused."""

    def prepare(self, spec: JobSpec) -> str:
        """Nothing to make ready."""
        if spec.container is not None:
            sentence = "This cluster runs no containers."
            raise Unprocessable(
                sentence, code="no_containers", faults=[Fault("/container", sentence)]
            )
        return ":"

    def launch(self, _: JobSpec) -> str:
        """The payload's own shell."""
        return 'exec /bin/sh "$headgate/payload"'
