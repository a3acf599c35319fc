#!/usr/bin/env python3
"""Runs a program beside a PostgreSQL server of its own:

    with_postgres.py PROGRAM [ARGUMENT...]

The server listens on a Unix socket in a folder that is removed at the end. The program's
environment tells libpq where it is, and VIGIL_POSTGRES_PROCESS has its process number. The
server refuses to run as root, so for root it runs as the user postgres or nobody. Ends
with 77 if no server is installed (on Debian: apt-get install postgresql).
"""
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NOT_HERE = 77


def newest_first(folders):
    """Sorted by the numbers of their versions: 15 before 9.6."""
    return sorted(folders, key=lambda f: [int(n) for n in re.findall(r"\d+", f)], reverse=True)


def find_programs():
    folders = newest_first(glob.glob("/usr/lib/postgresql/*/bin"))
    found = shutil.which("initdb", path=os.pathsep.join(folders + [os.environ.get("PATH", "")]))
    return os.path.dirname(found) if found else None


def server_user():
    """The password entry of the user that the server runs as, or None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    return None


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # cleans up
    programs = find_programs()
    if programs is None:
        print("skipped: no PostgreSQL server here: apt-get install postgresql")
        return NOT_HERE
    for name in [n for n in os.environ if n.startswith("PG")]:
        del os.environ[name]  # of another server
    user = server_user()
    folder = tempfile.mkdtemp(prefix="vigil-pg-", dir="/tmp")  # a socket's path is short
    as_user = {}
    if user is not None:
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        try:
            os.chown(folder, user.pw_uid, user.pw_gid)
            subprocess.run(["true"], check=True, **as_user)
        except OSError as error:  # a container whose root is not quite one
            os.rmdir(folder)
            print(f"no PostgreSQL server here: nothing can be run as {user.pw_name}: {error}")
            return NOT_HERE
    data = os.path.join(folder, "data")

    def start(name, *arguments, output):
        return subprocess.Popen([os.path.join(programs, name), *arguments], cwd=folder,
                                stdin=subprocess.DEVNULL, stdout=output,
                                stderr=subprocess.STDOUT, **as_user)

    server = None
    log = open(os.path.join(folder, "log"), "w+", encoding="utf-8", errors="replace")
    try:
        made = start("initdb", "-D", data, "-U", "vigil", "-A", "trust", "-E", "UTF8",
                     "--locale=C", "--no-sync", output=log)
        if made.wait() == 0:
            server = start("postgres", "-D", data, "-k", folder, "-c", "listen_addresses=",
                           "-c", "fsync=off", "-c", "max_connections=20", "-c",
                           "max_wal_senders=0", "-c", "shared_buffers=16MB", output=log)
            while server.poll() is None:
                if start("pg_isready", "-h", folder, output=subprocess.DEVNULL).wait() == 0:
                    environment = dict(os.environ, PGHOST=folder, PGUSER="vigil",
                                       PGDATABASE="postgres",
                                       VIGIL_POSTGRES_PROCESS=str(server.pid))
                    return subprocess.run(sys.argv[1:], env=environment,
                                          check=False).returncode
                time.sleep(0.05)
        log.seek(0)
        print("the server did not start:\n" + log.read())
        return 1
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # "immediate shutdown"
            server.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
