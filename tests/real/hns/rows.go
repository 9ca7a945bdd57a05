package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime/debug"
	"sort"
	"strings"
)

// A question to HNS, and whether the answer is real HNS's.
type row struct {
	ID       string `json:"id"`
	Asked    string `json:"asked"`
	Wanted   string `json:"wanted"`
	Answered string `json:"answered"`
	OK       bool   `json:"ok"`
}

type interview struct {
	rows []row
	node node
}

// Notes an answer that must be as wanted.
func (asked *interview) equal(id, question string, wanted, answered any) {
	want, got := fmt.Sprint(wanted), fmt.Sprint(answered)
	asked.note(id, question, want, got, want == got)
}

// Notes an answer that was judged.
func (asked *interview) note(id, question, wanted, answered string, ok bool) {
	asked.rows = append(asked.rows, row{id, question, wanted, answered, ok})
}

// Notes an error, or that there was none. Returns whether it may continue.
func (asked *interview) succeeds(id, question string, err error) bool {
	answered := "success"
	if err != nil {
		answered = err.Error()
	}
	asked.note(id, question, "success", answered, err == nil)
	return err == nil
}

// Notes a refusal: its words must contain each of these.
func (asked *interview) refuses(id, question string, err error, words ...string) {
	answered, ok := "success", err != nil
	if err != nil {
		answered = err.Error()
	}
	for _, word := range words {
		ok = ok && strings.Contains(strings.ToLower(answered), strings.ToLower(word))
	}
	asked.note(id, question, "an error with "+strings.Join(words, " and "), answered, ok)
}

// Notes which of these keys an object lacks, and those whose value is of another JSON type.
func (asked *interview) shaped(id, question string, object map[string]any, shape map[string]string) {
	var wrong []string
	for key, kind := range shape {
		if got := kindOf(object, key); got != kind {
			wrong = append(wrong, key+" is "+got)
		}
	}
	sort.Strings(wrong)
	keys := make([]string, 0, len(shape))
	for key := range shape {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	answered := "these"
	if len(wrong) > 0 {
		answered = strings.Join(wrong, ", ")
	}
	asked.note(id, question, strings.Join(keys, " "), answered, len(wrong) == 0)
}

func kindOf(object map[string]any, key string) string {
	value, there := object[key]
	if !there {
		return "missing"
	}
	switch value.(type) {
	case string:
		return "text"
	case float64, json.Number:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "list"
	case map[string]any:
		return "object"
	}
	return "null"
}

// A step that panics, as Calico's own code does on an answer that it does not expect, is a row.
func (asked *interview) whole(step func(*interview)) {
	defer func() {
		if said := recover(); said != nil {
			stack := regexp.MustCompile(`main\.\(\*interview\)\.(\w+)`).FindStringSubmatch(string(debug.Stack()))
			asked.note("panic", fmt.Sprint(stack), "no panic", fmt.Sprint(said), false)
		}
	}()
	step(asked)
}

// The policies of a kind, as JSON with sorted keys.
func ofType(policies []json.RawMessage, kind string) []string {
	found := []string{}
	for _, raw := range policies {
		var policy map[string]any
		if json.Unmarshal(raw, &policy) == nil && policy["Type"] == kind {
			found = append(found, compact(policy))
		}
	}
	return found
}

func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
