"""Tests that the names of this machine are gathered from where the system keeps them."""

from __future__ import annotations

import socket
import sys

from ledger.device.machine_names import machine_names


def test_machine_names_has_user_host_and_folders(monkeypatch, tmp_path):
    home = tmp_path / "planted-home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", "planted-user")
    monkeypatch.setattr(socket, "gethostname", lambda: "planted-host.example.org")
    names = machine_names("/planted/extra/")
    assert {"planted-user", "planted-home", "planted-host", "planted-host.example.org"} <= set(names.words)
    assert {str(home), sys.prefix, "/planted/extra"} <= set(names.folders)
    assert list(names.folders) == sorted(names.folders, key=len, reverse=True)


def test_machine_names_leaves_out_names_that_name_nobody(monkeypatch):
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    names = machine_names()
    assert not {"root", "localhost", ""} & set(names.words)
    assert not {"/", ""} & set(names.folders) and not any(word.startswith("127.") for word in names.words)
