"""The model of running that a command line names: a file, or a preset."""

from gantree.cli.input.files import read_text, source_of
from gantree.model.cluster import Cluster
from gantree.sim.running.model import RunningModel
from gantree.sim.running.reader import PRESET_NAMES, check_tiers, preset, read_running


def running_model(given: str | None, site: Cluster) -> RunningModel:
    """The model for a cluster; all off where none is given. Raises BadInput and BadFields."""
    if given is None:
        return RunningModel()
    known = given in PRESET_NAMES
    model = preset(given) if known else read_running(read_text(given), source_of(given))
    check_tiers(model, ("fabric", *site.tiers))
    return model
