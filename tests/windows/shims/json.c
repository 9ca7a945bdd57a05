#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include <stdarg.h>
#include "json.h"

static struct json *fresh(int kind, const char *text)
{
    struct json *value = calloc(1, sizeof *value);
    value->kind = kind;
    value->text = text ? strdup(text) : NULL;
    return value;
}

static const char *blank(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static void utf8(char **to, unsigned code)
{
    if (code < 0x80)
        *(*to)++ = (char)code;
    else if (code < 0x800) {
        *(*to)++ = (char)(0xC0 | code >> 6);
        *(*to)++ = (char)(0x80 | (code & 0x3F));
    } else {
        *(*to)++ = (char)(0xE0 | code >> 12);
        *(*to)++ = (char)(0x80 | (code >> 6 & 0x3F));
        *(*to)++ = (char)(0x80 | (code & 0x3F));
    }
}

/* The text after a quote, unescaped; `*at` is set behind its end. NULL without an end. */
static char *quoted(const char **at)
{
    static const char *const short_forms = "\"\"\\\\//b\bf\fn\nr\rt\t";
    const char *p = *at;
    char *text = malloc(strlen(p) * 3 + 1), *to = text;
    for (; *p && *p != '"'; p++) {
        if (*p != '\\') {
            *to++ = *p;
            continue;
        }
        p++;
        unsigned code = 0;
        if (*p == 'u' && sscanf(p + 1, "%4x", &code) == 1 && strlen(p) > 4) {
            utf8(&to, code);
            p += 4;
            continue;
        }
        const char *form = short_forms;
        while (*form && *form != *p)
            form += 2;
        if (!*p || !*form)
            break;
        *to++ = form[1];
    }
    *to = 0;
    if (*p != '"') {
        free(text);
        return NULL;
    }
    *at = p + 1;
    return text;
}

static struct json *value(const char **at);

static struct json *members(const char **at, int object)
{
    struct json *whole = fresh(object ? JSON_OBJECT : JSON_LIST, NULL);
    char end = object ? '}' : ']';
    *at = blank(*at + 1);
    while (**at && **at != end) {
        char *key = NULL;
        if (object) {
            if (*(*at)++ != '"' || !(key = quoted(at)))
                break;
            *at = blank(*at);
            if (*(*at)++ != ':') {
                free(key);
                break;
            }
        }
        struct json *item = value(at);
        if (!item) {
            free(key);
            break;
        }
        json_add(whole, item);
        if (object) {
            whole->keys = realloc(whole->keys, whole->count * sizeof *whole->keys);
            whole->keys[whole->count - 1] = key;
        }
        *at = blank(*at);
        if (**at != ',')
            break;
        *at = blank(*at + 1);
    }
    if (**at == end) {
        (*at)++;
        return whole;
    }
    json_free(whole);
    return NULL;
}

static struct json *value(const char **at)
{
    *at = blank(*at);
    if (**at == '{' || **at == '[')
        return members(at, **at == '{');
    if (**at == '"') {
        (*at)++;
        char *text = quoted(at);
        struct json *made = text ? fresh(JSON_TEXT, text) : NULL;
        free(text);
        return made;
    }
    char word[64] = "";
    size_t length = strcspn(*at, ",}] \t\r\n");
    if (length == 0 || length >= sizeof word)
        return NULL;
    memcpy(word, *at, length);
    *at += length;
    if (!strcmp(word, "null"))
        return fresh(JSON_NULL, NULL);
    if (!strcmp(word, "true") || !strcmp(word, "false"))
        return fresh(JSON_BOOL, word);
    return strchr("-0123456789", *word) ? fresh(JSON_NUMBER, word) : NULL;
}

struct json *json_parse(const char *text)
{
    struct json *made = value(&text);
    if (made && *blank(text)) {
        json_free(made);
        return NULL;
    }
    return made;
}

struct json *json_made(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int size = vsnprintf(NULL, 0, format, list) + 1;
    va_end(list);
    char *text = malloc(size);
    va_start(list, format);
    vsnprintf(text, size, format, list);
    va_end(list);
    struct json *made = json_parse(text);
    free(text);
    return made;
}

void json_free(struct json *value)
{
    if (!value)
        return;
    for (int i = 0; i < value->count; i++) {
        json_free(value->items[i]);
        if (value->keys)
            free(value->keys[i]);
    }
    free(value->items);
    free(value->keys);
    free(value->text);
    free(value);
}

struct json *json_copy(const struct json *value)
{
    struct json *copy = fresh(value->kind, value->text);
    for (int i = 0; i < value->count; i++) {
        if (value->kind == JSON_OBJECT)
            json_put(copy, value->keys[i], json_copy(value->items[i]));
        else
            json_add(copy, json_copy(value->items[i]));
    }
    return copy;
}

static void print_text(struct text *to, const char *text)
{
    char one[8];
    add(to, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            snprintf(one, sizeof one, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            snprintf(one, sizeof one, "\\u%04x", *text);
        else
            snprintf(one, sizeof one, "%c", *text);
        add(to, one);
    }
    add(to, "\"");
}

void json_print(struct text *to, const struct json *value)
{
    if (value->kind == JSON_TEXT) {
        print_text(to, value->text);
    } else if (value->kind == JSON_LIST || value->kind == JSON_OBJECT) {
        int object = value->kind == JSON_OBJECT;
        add(to, object ? "{" : "[");
        for (int i = 0; i < value->count; i++) {
            if (i)
                add(to, ",");
            if (object) {
                print_text(to, value->keys[i]);
                add(to, ":");
            }
            json_print(to, value->items[i]);
        }
        add(to, object ? "}" : "]");
    } else {
        add(to, value->text ? value->text : "null");
    }
}

char *json_printed(const struct json *value)
{
    struct text text = {0};
    json_print(&text, value);
    return text.at;
}

static int find(const struct json *object, const char *key)
{
    if (object && object->kind == JSON_OBJECT)
        for (int i = 0; i < object->count; i++)
            if (!strcmp(object->keys[i], key))
                return i;
    return -1;
}

struct json *json_get(const struct json *object, const char *key)
{
    int at = find(object, key);
    return at < 0 ? NULL : object->items[at];
}

const char *json_text(const struct json *object, const char *key)
{
    const struct json *found = json_get(object, key);
    return found && found->kind == JSON_TEXT ? found->text : "";
}

long json_number(const struct json *object, const char *key, long otherwise)
{
    const struct json *found = json_get(object, key);
    return found && found->kind == JSON_NUMBER ? strtol(found->text, NULL, 10) : otherwise;
}

int json_true(const struct json *object, const char *key)
{
    const struct json *found = json_get(object, key);
    return found && found->kind == JSON_BOOL && *found->text == 't';
}

int json_is(const struct json *object, const char *key, const char *wanted)
{
    return !_stricmp(json_text(object, key), wanted);
}

void json_drop(struct json *list, int at)
{
    json_free(list->items[at]);
    if (list->keys)
        free(list->keys[at]);
    for (int i = at + 1; i < list->count; i++) {
        list->items[i - 1] = list->items[i];
        if (list->keys)
            list->keys[i - 1] = list->keys[i];
    }
    list->count--;
}

void json_put(struct json *object, const char *key, struct json *value)
{
    int at = find(object, key);
    if (at >= 0 && value) {
        json_free(object->items[at]);
        object->items[at] = value;
    } else if (at >= 0) {
        json_drop(object, at);
    } else if (value) {
        json_add(object, value);
        object->keys = realloc(object->keys, object->count * sizeof *object->keys);
        object->keys[object->count - 1] = strdup(key);
    }
}

void json_put_text(struct json *object, const char *key, const char *text)
{
    json_put(object, key, fresh(JSON_TEXT, text));
}

void json_default(struct json *object, const char *key, struct json *value)
{
    if (find(object, key) < 0)
        json_put(object, key, value);
    else
        json_free(value);
}

void json_add(struct json *list, struct json *value)
{
    list->items = realloc(list->items, (list->count + 1) * sizeof *list->items);
    list->items[list->count++] = value;
}
