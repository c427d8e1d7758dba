"""Errors and warnings of the package."""


class PerjouleError(RuntimeError):
    """An error returned by libperjoule; `status` is its number in perjoule/base.h."""

    def __init__(self, text: str, status: int = -13):
        super().__init__(text)
        self.status = status


class LibraryNotFound(PerjouleError, ImportError):
    """libperjoule is missing, can't be loaded or is too old."""

    def __init__(self, text: str):
        PerjouleError.__init__(self, text, -2)


class ModelNotRecognised(PerjouleError):
    """None of the model's modules was recognised."""

    def __init__(self, text: str):
        super().__init__(text, -9)


class EnergyUnavailable(UserWarning):
    """No power sensor works here: times are recorded, energies are None."""


class SensorsContradict(UserWarning):
    """Two sensors disagree about one quantity, or one has stopped: intervals contain both. Once per process and kind."""


class PartlyRecognised(UserWarning):
    """Some modules of a model belong to no recorded component."""


class CoarseRecording(UserWarning):
    """Less is recorded than was asked for: phases and tokens only, as of a compiled graph, or parts of layers not in every
    step."""
