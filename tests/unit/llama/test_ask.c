/* A request's JSON: what it means, and what is refused with its place. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "llama/ask.h"
#include "llama/chat.h"

enum { VOCABULARY = 1000 };

static struct pl_llm_ask ask;
static struct pl_llm_fault fault;

static bool reads(enum pl_llm_route route, const char *body) {
    fault = (struct pl_llm_fault){ 0 };
    return pl_llm_ask_read(route, body, strlen(body), VOCABULARY, &ask, &fault);
}

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

TEST(a_chat_with_everything) {
    assert_true(
        reads(PL_LLM_CHAT,
              "{" HELLO ",\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
              "\"max_tokens\":7,\"stop\":[\"a\",\"b\"],\"seed\":5,\"n\":2,\"temperature\":0.5,\"top_p\":0.9,"
              "\"logprobs\":true,\"top_logprobs\":3,\"logit_bias\":{\"7\":-100},\"presence_penalty\":1,"
              "\"user\":\"somebody\",\"grammar\":null}"));
    assert_int_equal(ask.message_count, 1);
    assert_string_equal(ask.messages[0].content, "hi");
    assert_true(ask.stream && ask.include_usage);
    assert_int_equal(ask.max_tokens, 7);
    assert_int_equal(ask.n, 2);
    assert_int_equal(ask.logprobs, 3);
    assert_int_equal(ask.stop_count, 2);
    assert_int_equal(ask.sampling.seed, 5);
    assert_int_equal(ask.sampling.bias_count, 1);
    assert_int_equal(ask.sampling.biases[0].token, 7);
    assert_null(ask.grammar);
    pl_llm_ask_free(&ask);
}

TEST(content_in_parts_and_a_new_name_for_system) {
    assert_true(
        reads(PL_LLM_CHAT,
              "{\"messages\":[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
              "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}],"
              "\"max_completion_tokens\":9.0}"));
    assert_string_equal(ask.messages[0].role, "system");
    assert_string_equal(ask.messages[1].content, "ab");
    assert_int_equal(ask.max_tokens, 9);
    pl_llm_ask_free(&ask);
}

TEST(prompts_come_in_four_shapes) {
    static const struct {
        const char *body;
        size_t inputs, tokens;
    } cases[] = { { "{\"prompt\":\"a\"}", 1, 0 },
                  { "{\"prompt\":[\"a\",\"b\"]}", 2, 0 },
                  { "{\"prompt\":[1,2,3]}", 1, 3 },
                  { "{\"prompt\":[[1,2],[3]]}", 2, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(reads(PL_LLM_COMPLETION, cases[i].body));
        assert_int_equal(ask.input_count, cases[i].inputs);
        assert_int_equal(json_array_size(ask.inputs[0].tokens), cases[i].tokens);
        pl_llm_ask_free(&ask);
    }
}

TEST(what_is_wrong_is_named) {
    static const struct {
        enum pl_llm_route route;
        const char *body, *words;
        int status;
    } cases[] = {
        { PL_LLM_CHAT, "{", "byte", 400 },
        { PL_LLM_CHAT, "[]", "no JSON object", 400 },
        { PL_LLM_CHAT, "{\"messages\":[]}", "messages", 400 },
        { PL_LLM_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content", 400 },
        { PL_LLM_CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", 400 },
        { PL_LLM_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
          "image_url", 501 },
        { PL_LLM_CHAT, "{" HELLO ",\"tools\":[{}]}", "tools", 501 },
        { PL_LLM_CHAT, "{" HELLO ",\"max_tokens\":0}", "max_tokens 0", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"max_tokens\":1.5}", "whole number", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"max_tokens\":1e300}", "whole number", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"temperature\":-1}", "temperature", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"temperature\":\"hot\"}", "temperature", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"logit_bias\":{\"1000\":1}}", "vocabulary", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"logit_bias\":{\"x\":1}}", "token numbers", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"stop\":[\"\"]}", "stop", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"stream\":\"yes\"}", "stream", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"top_logprobs\":3}", "logprobs", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"n\":99}", "n 99", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"response_format\":{\"type\":\"xml\"}}", "xml", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"response_format\":{\"type\":\"json_schema\"}}", "schema is missing",
          400 },
        { PL_LLM_CHAT, "{" HELLO ",\"grammar\":\"root ::= \\\"a\\\"\",\"ignore_eos\":true}", "ignore_eos",
          400 },
        { PL_LLM_CHAT,
          "{" HELLO ",\"grammar\":\"root ::= \\\"a\\\"\",\"response_format\":{\"type\":\"json_object\"}}",
          "one of them", 400 },
        { PL_LLM_CHAT, "{" HELLO ",\"seed\":1,\"seed\":2}", "byte", 400 },
        { PL_LLM_COMPLETION, "{}", "prompt is missing", 400 },
        { PL_LLM_COMPLETION, "{\"prompt\":[1,1000]}", "below 1000", 400 },
        { PL_LLM_COMPLETION, "{\"prompt\":[]}", "prompt", 400 },
        { PL_LLM_COMPLETION, "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":4}", "at most 8", 400 },
        { PL_LLM_EMBEDDING, "{\"input\":\"a\",\"encoding_format\":\"zip\"}", "zip", 400 },
        { PL_LLM_TOKENIZE, "{\"content\":[1]}", "content", 400 },
        { PL_LLM_DETOKENIZE, "{\"tokens\":\"a\"}", "token numbers", 400 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (reads(cases[i].route, cases[i].body)) fail_msg("%s is taken", cases[i].body);
        if (strstr(fault.message, cases[i].words) == NULL || fault.status != cases[i].status)
            fail_msg("%s: %d %s", cases[i].body, fault.status, fault.message);
        pl_llm_ask_free(&ask);
    }
}

TEST(a_schema_becomes_a_grammar) {
    assert_true(reads(PL_LLM_CHAT, "{" HELLO ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
                                   "{\"schema\":{\"type\":\"integer\"}}}}"));
    assert_non_null(strstr(ask.grammar, "root ::= integer"));
    pl_llm_ask_free(&ask);
}

TEST(the_system_text_of_a_template) {
    char *text =
        pl_llm_default_system("{% if a %}{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}");
    assert_string_equal(text, "Be kind");
    free(text);
    text = pl_llm_default_system("{{- '<|im_start|>system\\nOne.\\nTwo.<|im_end|>\\n' }}");
    assert_string_equal(text, "One.\nTwo.");
    free(text);
    assert_null(
        pl_llm_default_system("{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>' }}"));
    assert_null(pl_llm_default_system("[INST]"));
}

RUN(cmocka_unit_test(a_chat_with_everything), cmocka_unit_test(content_in_parts_and_a_new_name_for_system),
    cmocka_unit_test(prompts_come_in_four_shapes), cmocka_unit_test(what_is_wrong_is_named),
    cmocka_unit_test(a_schema_becomes_a_grammar), cmocka_unit_test(the_system_text_of_a_template))
