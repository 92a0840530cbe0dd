#!/bin/sh
# Makes a folder for the files of tests and prints its name: in memory where there is room and programs can be started
# from there, else where temporary files are. Tests sync thousands of times, and would wait for the disk each time.
memory=/dev/shm
room=$(df -Pk "$memory" 2> /dev/null | awk 'NR == 2 { print $4 }')
if [ "${room:-0}" -gt 4000000 ] && folder=$(mktemp -d "$memory/clew.XXXXXX" 2> /dev/null); then
    printf '#!/bin/sh\n' > "$folder/starts" && chmod +x "$folder/starts"
    if "$folder/starts" 2> /dev/null; then
        rm "$folder/starts"
        echo "$folder"
        exit
    fi
    rm -r "$folder"
fi
exec mktemp -d
