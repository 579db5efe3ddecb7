#!/bin/sh
# Prometheus' own tool reads our page. usage: check.sh PRINT_PAGE WORKER_TEXT…   77: there is no promtool here
command -v promtool >/dev/null || exit 77
page=$1
shift
"$page" | promtool check metrics || exit 1
# with the families of workers twice, as of two workers: 3 is promtool's opinion on their names, which are not ours
"$page" "$@" "$@" | promtool check metrics >/dev/null 2>&1
status=$?
[ $status -eq 0 ] || [ $status -eq 3 ] || { "$page" "$@" "$@" | promtool check metrics; exit 1; }
