#include "json.h"
#include <ctype.h>
#include <string.h>

static const char *blank(const char *at)
{
    while (at && *at && isspace((unsigned char)*at))
        at++;
    return at;
}

/* The position after a value. */
static const char *skip(const char *at)
{
    int depth = 0;
    at = blank(at);
    do {
        if (*at == '"') {
            for (at++; *at && *at != '"'; at++)
                if (*at == '\\' && at[1])
                    at++;
            if (*at)
                at++;
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (depth) {
            at++;
        } else {
            while (*at && !strchr(",}] \t\r\n", *at))
                at++;
        }
    } while (*at && depth > 0);
    return blank(at);
}

static int same(const char *a, const char *b, size_t size)
{
    return _strnicmp(a, b, size) == 0;
}

const char *json_member(const char *object, const char *key)
{
    const char *at = blank(object);
    if (!at || *at != '{')
        return NULL;
    at = blank(at + 1);
    while (*at == '"') {
        const char *name = at + 1;
        const char *end = strchr(name, '"');
        if (!end)
            return NULL;
        at = blank(end + 1);
        if (*at != ':')
            return NULL;
        at = blank(at + 1);
        if ((size_t)(end - name) == strlen(key) && same(name, key, strlen(key)))
            return at;
        at = skip(at);
        if (*at == ',')
            at = blank(at + 1);
    }
    return NULL;
}

const char *json_item(const char *array, int n)
{
    const char *at = blank(array);
    if (!at || *at != '[')
        return NULL;
    at = blank(at + 1);
    while (*at && *at != ']') {
        if (n-- == 0)
            return at;
        at = skip(at);
        if (*at == ',')
            at = blank(at + 1);
    }
    return NULL;
}

void json_text(const char *value, char *to, unsigned size)
{
    unsigned used = 0;
    value = blank(value);
    if (value && *value == '"')
        for (value++; *value && *value != '"' && used + 1 < size; value++) {
            if (*value == '\\' && value[1])
                value++;
            to[used++] = *value;
        }
    to[used] = 0;
}

int json_is(const char *value, const char *text)
{
    char own[256];
    json_text(value, own, sizeof own);
    return _stricmp(own, text) == 0;
}
