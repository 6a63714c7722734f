"""Creates a ledger: its folders, git attributes that keep record bytes unchanged, and a repository if needed."""

from __future__ import annotations

import subprocess
from pathlib import Path as FilePath

from ledger.errors import InputError, StateError
from ledger.git.commit import Repository
from ledger.kernel_folder import own_folder
from ledger.record_files import write_atomically

FOLDERS = ("predictions", "verifications", "kernels", "hardware")
ATTRIBUTES = "predictions/** -text\nverifications/** -text\n"


def found(directory: FilePath) -> list[str]:
    """Make a ledger in a folder, leaving whatever is there, and return what was done, a line each.

    The new files are committed where git knows an identity. Raises: InputError, StateError.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be made a folder ({error.strerror}); expected a free name") from error
    done = []
    try:
        repository = Repository(directory)
    except StateError:
        subprocess.run(["git", "init", "--quiet", str(directory)], check=True, stdin=subprocess.DEVNULL)
        repository = Repository(directory)
        done.append(f"made a git repository in {directory}")
    files = _missing_files(repository.root)
    if not files:
        return [*done, f"{repository.root} holds a ledger already; nothing to do"]
    for path, data in files.items():
        write_atomically(repository.root / path, data)
        done.append(f"wrote {path}")
    fresh = {path: data for path, data in files.items() if not repository.is_committed(path)}
    try:
        repository.commit(lambda _parent: (fresh, "Found a ledger\n"), replace=True)
        done.append("committed these files alone")
    except StateError as error:
        done.append(f"not committed: {error}")
    return done


def _missing_files(root: FilePath) -> dict[str, bytes]:
    kernels = own_folder(root).relative_to(root).as_posix()
    folders = (kernels if folder == "kernels" else folder for folder in FOLDERS)
    files = {f"{folder}/.gitkeep": b"" for folder in folders if not (root / folder).exists()}
    attributes = root / ".gitattributes"
    held = attributes.read_text(encoding="utf-8") if attributes.is_file() else ""
    missing = [line for line in ATTRIBUTES.splitlines() if line not in held.splitlines()]
    if missing and not held:
        files[".gitattributes"] = ATTRIBUTES.encode()
    return files
