/* JSON as a tree, for the DLLs that answer as HNS does. */
#ifndef SHIM_JSON_H
#define SHIM_JSON_H
#include "state.h"

struct json {
    enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_LIST, JSON_OBJECT } kind;
    char *text;          /* of a text, unescaped; of a number or boolean, as written */
    struct json **items; /* of a list or object */
    char **keys;         /* of an object, in the order of the items */
    int count;
};

/* NULL if it is not one whole JSON value. */
struct json *json_parse(const char *text);
/* A value written with printf's letters; texts from outside go in by json_put_text, which escapes nothing. */
struct json *json_made(const char *format, ...);
void json_free(struct json *value);
struct json *json_copy(const struct json *value);
void json_print(struct text *to, const struct json *value);
/* The printed value, which the caller frees. */
char *json_printed(const struct json *value);

/* The value of a key; NULL if the object, or the key, is not there. It stays the object's. */
struct json *json_get(const struct json *object, const char *key);
/* The text of a key; empty if it has none. */
const char *json_text(const struct json *object, const char *key);
long json_number(const struct json *object, const char *key, long otherwise);
int json_true(const struct json *object, const char *key);
/* Whether a key has this text, whatever its case. */
int json_is(const struct json *object, const char *key, const char *wanted);

/* Sets a key to a value, which becomes the object's; NULL removes the key. */
void json_put(struct json *object, const char *key, struct json *value);
void json_put_text(struct json *object, const char *key, const char *text);
/* The same, unless the key is there. */
void json_default(struct json *object, const char *key, struct json *value);
/* Appends a value, which becomes the list's. */
void json_add(struct json *list, struct json *value);
/* Removes and frees an item. */
void json_drop(struct json *list, int at);
#endif
