/* plimsoll - the program: every verb, and the gateway process behind the hidden verb `main`. */
#include "cli/verbs.h"

int main(int argc, char **argv) { return pl_cli_main(argc, argv); }
