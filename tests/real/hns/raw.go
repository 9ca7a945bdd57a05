package main

import (
	"encoding/json"
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// What hcsshim leaves out of an object is asked for as it asks (its internal/hns): the whole answer, with its envelope.
type envelope struct {
	Success   bool
	Error     string
	ErrorCode uint32
	Output    json.RawMessage
}

var hnsCall = windows.NewLazySystemDLL("vmcompute.dll").NewProc("HNSCall")

func call(method, path, body string) (envelope, error) {
	var answer *uint16
	texts := [3]*uint16{}
	for i, text := range []string{method, path, body} {
		wide, err := windows.UTF16PtrFromString(text)
		if err != nil {
			return envelope{}, err
		}
		texts[i] = wide
	}
	result, _, _ := hnsCall.Call(uintptr(unsafe.Pointer(texts[0])), uintptr(unsafe.Pointer(texts[1])),
		uintptr(unsafe.Pointer(texts[2])), uintptr(unsafe.Pointer(&answer)))
	text := windows.UTF16PtrToString(answer)
	windows.CoTaskMemFree(unsafe.Pointer(answer))
	if int32(result) < 0 {
		return envelope{}, fmt.Errorf("HNSCall ended with 0x%08x", uint32(result))
	}
	var said envelope
	return said, json.Unmarshal([]byte(text), &said)
}

// One object by its path.
func object(path string) map[string]any {
	said, err := call("GET", path, "")
	if err != nil || !said.Success {
		return nil
	}
	found := map[string]any{}
	if json.Unmarshal(said.Output, &found) != nil {
		return nil
	}
	return found
}
