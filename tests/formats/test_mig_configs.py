"""Configs of mig-parted: its own file, the ConfigMap that has it, and what is wrong in one, by line and field."""

import pytest

from gantree.formats.mig_configs import read_mig_configs
from gantree.model.errors import BadFields
from gantree.model.mig_configs import MigConfig, MigLayout

TEXT = """version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  balanced:
    - device-filter: ["0x233010DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "3g.40gb": 1}
  custom:
    - devices: [0, 1]
      mig-enabled: false
    - devices: [2]
      mig-enabled: true
      mig-devices:
        "1g.10gb+me": 1
"""
CONFIGS = (
    MigConfig("all-disabled", (MigLayout(None, on=False),)),
    MigConfig("balanced", (MigLayout(None, True, (("1g.10gb", 2), ("3g.40gb", 1)), chosen=True),)),
    MigConfig(
        "custom",
        (MigLayout((0, 1), on=False), MigLayout((2,), True, (("1g.10gb+me", 1),))),
    ),
)


def test_a_file_and_a_config_map_say_the_same() -> None:
    inner = "".join(f"    {line}\n" for line in TEXT.splitlines())
    manifest = f"kind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  config.yaml: |\n{inner}"
    assert read_mig_configs(TEXT, "m.yaml") == CONFIGS
    assert read_mig_configs(manifest, "m.yaml") == CONFIGS


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("devices: [2]", "devices: two", "14: mig-configs.custom[1].devices: found `two`; allowed: all, or"),
        ("enabled: false", "enabled: maybe", "5: mig-configs.all-disabled[0].mig-enabled: found `maybe`"),
        ('"1g.10gb+me": 1', '"1g.10gb+me": 0', "17: mig-configs.custom[1].mig-devices.1g.10gb+me: found `0`"),
        ('{"1g.10gb": 2, "3g.40gb": 1}', "7", "10: mig-configs.balanced[0].mig-devices: found `7`"),
        ("mig-enabled: true\n      mig-devices:\n", "mig: 1\n      mig-devices:\n", "15: mig-configs.custom[1].mig:"),
        ("mig-configs:", "configs:", "1: mig-configs: found nothing; allowed: a mapping of names"),
        ("\n    - devices: all\n      mig-enabled: false", " x", "3: mig-configs.all-disabled: found `x`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_line_and_field(before: str, after: str, complaint: str) -> None:
    assert before in TEXT
    with pytest.raises(BadFields) as caught:
        read_mig_configs(TEXT.replace(before, after, 1), "m.yaml")
    assert f"m.yaml:{complaint}" in str(caught.value)


def test_a_config_map_without_the_text_and_an_empty_file_are_told() -> None:
    with pytest.raises(BadFields, match=r"data\.config\.yaml: found nothing"):
        read_mig_configs("kind: ConfigMap\ndata: {x: y}\n", "m.yaml")
    with pytest.raises(BadFields, match="mig-configs: found nothing"):
        read_mig_configs("", "m.yaml")
