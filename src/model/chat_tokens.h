/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the spellings of the tokens that chat layouts are made of. Must not know: their ids. */
#ifndef SLUICE_MODEL_CHAT_TOKENS_H
#define SLUICE_MODEL_CHAT_TOKENS_H

#define CHAT_USER "<｜User｜>"
#define CHAT_ASSISTANT "<｜Assistant｜>"
#define CHAT_EOS "<｜end▁of▁sentence｜>"
#define CHAT_THINK "<think>"
#define CHAT_THINK_END "</think>"
#define CHAT_CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define CHAT_CALLS_END "<｜tool▁calls▁end｜>"
#define CHAT_CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CHAT_CALL_END "<｜tool▁call▁end｜>"
#define CHAT_SEP "<｜tool▁sep｜>"
#define CHAT_OUTPUTS_BEGIN "<｜tool▁outputs▁begin｜>"
#define CHAT_OUTPUTS_END "<｜tool▁outputs▁end｜>"
#define CHAT_OUTPUT_BEGIN "<｜tool▁output▁begin｜>"
#define CHAT_OUTPUT_END "<｜tool▁output▁end｜>"

#endif
