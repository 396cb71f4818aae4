"""PCI ids: the kind of a device by class code, and the GPU model by vendor and device.

Class codes are of the PCI Code and ID Assignment Specification. GPU models are those that a device id settles, named
in the PCI ID repository (pci.ids) and, for NVIDIA's, in the list of its open kernel modules; memory sizes it leaves
out are those of the product. Ids that several products share (740c: MI250 and MI250X) are left out. 74b5 and 74b9 are
whole GPUs as a virtual machine sees them; one die of an MI250X is a GPU of 64 GB.
"""

NVIDIA, AMD, INTEL = "10de", "1002", "8086"
_GPU_VENDORS = frozenset({NVIDIA, AMD, INTEL})

_MODEL_OF_ID = {
    NVIDIA: {
        "15f7": "P100-12GB", "15f8": "P100-16GB", "15f9": "P100-16GB",
        "1db1": "V100-16GB", "1db4": "V100-16GB", "1df5": "V100-16GB",
        "1db5": "V100-32GB", "1db6": "V100-32GB", "1db8": "V100-32GB", "1eb8": "T4-16GB",
        "20b0": "A100-40GB", "20f1": "A100-40GB", "20b2": "A100-80GB", "20b5": "A100-80GB",
        "20bd": "A800-40GB", "20f3": "A800-80GB", "20f5": "A800-80GB",
        "20b7": "A30-24GB", "2230": "A6000-48GB", "2235": "A40-48GB", "2236": "A10-24GB", "2237": "A10G-24GB",
        "26b5": "L40-48GB", "26b9": "L40S-48GB", "27b8": "L4-24GB",
        "2330": "H100-80GB", "2331": "H100-80GB", "2321": "H100-94GB", "2335": "H200-141GB", "2324": "H800-80GB",
        "2901": "B200-180GB", "2941": "GB200-186GB",
    },
    AMD: {
        "738c": "MI100-32GB", "7408": "MI250X-64GB", "740f": "MI210-64GB", "74a0": "MI300A-128GB",
        "74a1": "MI300X-192GB", "74b5": "MI300X-192GB", "74a2": "MI308X-192GB",
        "74a5": "MI325X-256GB", "74b9": "MI325X-256GB", "75a0": "MI350X-288GB", "75a3": "MI355X-288GB",
    },
}  # fmt: skip


def bare(code: str | None) -> str:
    """Return a hexadecimal id without its prefix, in lower case: "0x10DE" is "10de"; "" for none."""
    return (code or "").strip().lower().removeprefix("0x")


def is_gpu(class_code: str, vendor: str) -> bool:
    """Return whether a device is a GPU, by its class ("0302", "030200") and, where given, its vendor ("10de").

    3D controllers (0302), other display controllers (0380: AMD's) and processing accelerators (1200: AMD's) are. VGA
    controllers (0300) are too, unless they are another vendor's: a server's management chip has one.
    """
    if class_code.startswith("0300"):
        return vendor in _GPU_VENDORS or not vendor
    return class_code == "03" or class_code.startswith(("0302", "0380", "12"))


def is_nic(class_code: str) -> bool:
    """Return whether a device is a network card: Ethernet (0200), InfiniBand (0207), another fabric's (0208, 0280)."""
    return class_code.startswith("02")


def is_nvswitch(class_code: str) -> bool:
    """Return whether a device that NVLinks end in is an NVSwitch ("other bridge", 0680 or 068000).

    NCCL writes 068001 for the bridge between NVLinks and an IBM POWER CPU.
    """
    return class_code.startswith("0680") and class_code != "068001"


def gpu_model(vendor: str, device: str) -> str | None:
    """Return the catalogue's name of a GPU ("A100-80GB" for 10de, 20b5); None where the ids do not settle it."""
    return _MODEL_OF_ID.get(vendor, {}).get(device)
