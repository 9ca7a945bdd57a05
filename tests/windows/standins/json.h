/* The parts of JSON that HNS's responses need. A value is a pointer to its first character. */
#ifndef JSON_H
#define JSON_H
/* The value of a key of an object, whatever the key's case; NULL if it has none. */
const char *json_member(const char *object, const char *key);
/* The n-th item of an array; NULL after the last. */
const char *json_item(const char *array, int n);
/* Whether it is a string that equals `text` without regard to case. */
int json_is(const char *value, const char *text);
/* Copies a string's text to `to`, which is empty if it is not a string. */
void json_text(const char *value, char *to, unsigned size);
#endif
