# shellcheck shell=bash
# Shared by the scripts: a Python that is new enough, and environments that are made once for each set of requirements.

say() { printf '%s\n' "$*" >&2; }

# The first interpreter that is 3.11 or newer; $PYTHON wins.
find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3.14 python3 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    say "Twinlens needs Python 3.11 or newer. Install one, or name it: PYTHON=/path/to/python $0"
    return 1
}

# fingerprint PYTHON [GROUP...]: changes with the interpreter, the package's requirements and those of the groups.
fingerprint() {
    "$1" - "${@:2}" <<'EOS'
import hashlib, json, sys, tomllib

with open("pyproject.toml", "rb") as file:
    found = tomllib.load(file)
project, groups = found["project"], found["dependency-groups"]
parts = [sys.version, found["build-system"], project["dependencies"], project["scripts"]]
parts += [groups[name] for name in sys.argv[1:]]
print(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16])
EOS
}

# bare FOLDER PYTHON: an environment with pip. Debian's Python comes without ensurepip, but with a pip that installs into
# other environments.
bare() {
    "$2" -m venv --clear "$1" 2>/dev/null || {
        "$2" -m venv --clear --without-pip "$1" && "$2" -m pip --python "$1/bin/python" install -qq pip
    }
}

# tidy FOLDER: every set of requirements makes an environment of its own; those that nobody used for a month go.
tidy() {
    local old
    while IFS= read -r -d '' old; do
        say "Removing the environment $old, unused for a month ..."
        rm -rf "$old" "$old.lock"
    done < <(find "$1" -mindepth 2 -maxdepth 2 -name complete -mtime +30 -printf '%h\0' 2>/dev/null)
}

# environment FOLDER PYTHON ARGS...: FOLDER is an environment in which `pip install ARGS` has succeeded.
# A second call is quick; calls at the same time wait for the first.
environment() {
    local folder=$1 python=$2 lock=$1.lock
    shift 2
    if [ "$folder" = .venv ]; then lock=.cache/venv.lock; fi
    mkdir -p "$(dirname "$folder")" "$(dirname "$lock")"
    (
        if command -v flock >/dev/null; then flock 9; fi
        # Its time says when it was last used.
        if [ -e "$folder/complete" ]; then
            touch "$folder/complete"
            exit 0
        fi
        say "Making the environment $folder ..."
        # Joined by && because “set -e” has no effect where the caller tests our result.
        bare "$folder" "$python" &&
            "$folder/bin/python" -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1" &&
            "$folder/bin/python" -m pip install -qq --disable-pip-version-check "$@" &&
            touch "$folder/complete"
    ) 9>"$lock" || return
    if [ "$folder" != .venv ]; then tidy "$(dirname "$folder")"; fi
}
