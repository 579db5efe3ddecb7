/* watch_main.c - becomes watch. Started by the keeper on main's order, never by hand. */
#include "watch/watch.h"

int main(int argc, char **argv) { return pl_watch_main(argc, argv); }
