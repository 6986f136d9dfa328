/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the entry points of maintenance commands that look inside the program; src/cli dispatches to them.
 * Must not know: the token loop's public API users. */
#ifndef SLUICE_COMMANDS_H
#define SLUICE_COMMANDS_H

/* argv[0] is the command's name. `cancel` becomes non-zero on SIGINT/SIGTERM. Prints to stdout/stderr; returns the exit
 * status: 0, 1 failed, 2 usage, 3 does not fit, 130 interrupted. */
int command_inspect(int argc, char **argv, const volatile int *cancel);
int command_check(int argc, char **argv, const volatile int *cancel);
int command_plan(int argc, char **argv, const volatile int *cancel);
int command_bench(int argc, char **argv, const volatile int *cancel);
int command_doctor(int argc, char **argv, const volatile int *cancel);
int command_convert(int argc, char **argv, const volatile int *cancel);
int command_synth(int argc, char **argv, const volatile int *cancel);
int command_tune(int argc, char **argv, const volatile int *cancel);
int command_trace(int argc, char **argv, const volatile int *cancel);

#endif
