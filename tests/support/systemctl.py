#!/usr/bin/python3
"""The acts of systemctl that the guides use, where no systemd runs: starts and reloads what a unit's file says, as its user."""
import glob
import os
import signal
import socket
import subprocess
import sys
import time


def unit_of(name):
    path = next(p for d in ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
                for p in glob.glob(os.path.join(d, name + ("" if "." in name else ".service"))))
    with open(path) as f:
        return dict(line.strip().split("=", 1) for line in f if "=" in line and line[0] not in "#;")


def pid_file(name):
    return "/run/%s.pid" % name.removesuffix(".service")


def pid_of(name):
    try:
        with open(pid_file(name)) as f:
            pid = int(f.read())
        os.kill(pid, 0)
        return pid
    except (OSError, ValueError):
        return None


def start(name):
    unit = unit_of(name)
    for path in unit.get("ReadWritePaths", "").split():
        if not os.path.isdir(path):
            sys.exit("%s: no directory %s" % (name, path))
    argv = ["setpriv", "--reuid=" + unit["User"], "--regid=" + unit["Group"], "--init-groups", "--no-new-privs", *unit["ExecStart"].split()]
    if unit.get("Type") == "oneshot":
        return subprocess.run(argv, umask=0o027, cwd="/").returncode
    if pid_of(name):
        return 0
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = "/run/%s.notify" % name
    if os.path.exists(path):
        os.unlink(path)
    notify.bind(path)
    os.chmod(path, 0o666)
    notify.settimeout(0.2)
    with open("/run/%s.log" % name, "ab") as log:
        process = subprocess.Popen(argv, env={**os.environ, "NOTIFY_SOCKET": path}, umask=0o027, cwd="/", stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
    with open(pid_file(name), "w") as f:
        f.write(str(process.pid))
    while process.poll() is None:
        try:
            if b"READY=1" in notify.recv(65536):
                return 0
        except TimeoutError:
            pass
    with open("/run/%s.log" % name) as log:
        print(log.read())
    return process.returncode or 1


def stop(name):
    pid = pid_of(name)
    if pid:
        os.kill(pid, signal.SIGTERM)
    while pid and pid_of(name):
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass
        with open("/proc/%d/stat" % pid) as f:
            if f.read().rsplit(") ", 1)[1][0] == "Z":
                break
        time.sleep(0.05)
    if os.path.exists(pid_file(name)):
        os.unlink(pid_file(name))
    return 0


def main(*words):
    options = [w for w in words if w.startswith("-")]
    act, *names = [w for w in words if not w.startswith("-")]
    status = 0
    for name in names:
        name = name.removesuffix(".service")
        if act in ("start", "enable"):
            status = start(name) or status
        elif act in ("stop", "disable"):
            status = stop(name) or status
        elif act in ("restart", "try-restart"):
            status = stop(name) or start(name) or status
        elif act == "reload":
            subprocess.run(unit_of(name)["ExecReload"].replace("$MAINPID", str(pid_of(name))).split(), check=True)
        elif act == "is-active":
            status = 0 if pid_of(name) else 3
        elif act == "kill":
            number = next(o for o in options if o.startswith("--signal=")).removeprefix("--signal=")
            os.kill(pid_of(name), getattr(signal, "SIG" + number))
        elif act == "preset":
            pass
        elif act == "is-enabled":
            print("enabled")
        else:
            sys.exit("systemctl: %s is not supported here" % act)
    return status


sys.exit(main(*sys.argv[1:]))
