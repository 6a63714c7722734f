"""Makes the kernels that ship with the package importable: `ledger.kernels.common` is kernels/common/.

The same folder serves a checkout and a wheel, and a `kernels/` folder of another repository never takes its place.
"""

from ledger.kernel_files import shipped_folder

__path__ = [str(shipped_folder("kernels"))]
