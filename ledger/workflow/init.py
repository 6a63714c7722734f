"""Creates a ledger: its folders, git attributes that keep record bytes unchanged, and a repository if needed."""

from __future__ import annotations

import subprocess
from pathlib import Path as FilePath

from ledger.errors import InputError, StateError
from ledger.git.commit import Repository
from ledger.git.identity import committer
from ledger.git.version import check_git
from ledger.git.work_tree import git_environment
from ledger.kernel_folder import own_folder
from ledger.record_files import write_atomically

FOLDERS = ("predictions", "verifications", "kernels", "hardware")
ATTRIBUTES = "predictions/** -text\nverifications/** -text\n"


def found(directory: FilePath) -> list[str]:
    """Make a ledger in a folder, leaving whatever is there, and return what was done, a line each.

    Files of a ledger that were written but never committed are committed. Nothing is written where no commit can be
    made. Raises: InputError, StateError.
    """
    done = []
    there = _existing(directory)
    repository = _repository_of(there)
    if repository is None:
        committer(there, git_environment())
        repository = _made(directory)
        done.append(f"made a git repository in {directory}")
    elif repository.root.resolve() != directory.resolve():
        root = repository.root
        raise InputError(
            f"{directory}: is inside the repository {root}, whose top holds the ledger; run: ledger init {root}"
        )
    repository.check_can_commit()
    missing, left = _missing_files(repository.root), _left_uncommitted(repository)
    lacking = _lacking_attributes(repository.root)
    told = [f".gitattributes lacks {line!r}; add it: git may change the bytes of records otherwise" for line in lacking]
    if not missing and not left:
        return [*done, *told, f"{repository.root} holds a ledger already; nothing to do"]
    for path, data in missing.items():
        write_atomically(repository.root / path, data)
        done.append(f"wrote {path}")
    fresh = {path: data for path, data in {**left, **missing}.items() if not repository.is_committed(path)}
    if fresh:
        repository.commit(lambda _parent: (fresh, "Found a ledger\n"), replace=True)
        done.append(f"committed {', '.join(fresh)} alone")
    return [*done, *told]


def _existing(directory: FilePath) -> FilePath:
    """Return a folder, or the nearest one above it that exists. Raises: InputError."""
    for folder in (directory, *directory.absolute().parents):
        if folder.is_dir():
            return folder
        if folder.exists():
            raise InputError(f"{folder}: is a file; expected a folder, or a free name")
    raise InputError(f"{directory}: has no folder above it; expected one")


def _repository_of(folder: FilePath) -> Repository | None:
    """Return the repository that holds a folder, None where there is none. Raises: StateError for one without use."""
    check_git()
    if _git("rev-parse", "--git-dir", folder=folder).returncode != 0:
        return None
    return Repository(folder)


def _git(*arguments: str, folder: FilePath) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, text=True, check=False
    )


def _made(directory: FilePath) -> Repository:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be made a folder ({error.strerror}); expected a free name") from error
    made = _git("init", "--quiet", folder=directory)
    if made.returncode != 0:
        raise StateError(f"{directory}: git cannot make a repository there: {made.stderr.strip()[-300:]}")
    return Repository(directory)


def _keeper_paths(root: FilePath) -> list[str]:
    """Return the path of the empty file that keeps each folder in git."""
    kernels = own_folder(root).relative_to(root).as_posix()
    return [f"{kernels if folder == 'kernels' else folder}/.gitkeep" for folder in FOLDERS]


def _missing_files(root: FilePath) -> dict[str, bytes]:
    files = {path: b"" for path in _keeper_paths(root) if not (root / path).parent.exists()}
    if not (root / ".gitattributes").exists():
        files[".gitattributes"] = ATTRIBUTES.encode()
    return files


def _lacking_attributes(root: FilePath) -> list[str]:
    """Return the lines that a user's own .gitattributes lacks; without them git may change the bytes of records."""
    attributes = root / ".gitattributes"
    held = attributes.read_bytes().splitlines() if attributes.is_file() else ATTRIBUTES.encode().splitlines()
    return [line for line in ATTRIBUTES.splitlines() if line.encode() not in held]


def _left_uncommitted(repository: Repository) -> dict[str, bytes]:
    """Return the files that an earlier init wrote, unchanged since, and that were never committed."""
    expected = {**dict.fromkeys(_keeper_paths(repository.root), b""), ".gitattributes": ATTRIBUTES.encode()}
    there = {path: data for path, data in expected.items() if (repository.root / path).is_file()}
    return {
        path: data
        for path, data in there.items()
        if (repository.root / path).read_bytes() == data and not repository.is_committed(path)
    }
