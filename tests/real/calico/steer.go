package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The instructions of the tests. tests/windows/standins/steer.h has the words, which the stand-ins in C share.
type orders struct {
	ends    bool
	code    int
	after   time.Duration
	deaf    bool
	ctrlC   int
	log     int64
	torn    bool
	child   bool
	hang    bool
	late    bool
	unready bool
	writes  time.Duration
}

const testFolder = `C:\test`

func testFile(name string) string {
	return filepath.Join(testFolder, name)
}

// Reads the instructions for this start and logs the start.
func started(name string) orders {
	var found orders
	for _, word := range strings.Fields(nextLine(name)) {
		key, value, _ := strings.Cut(word, "=")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "exit":
			found.ends, found.code = true, int(number)
		case "after":
			found.after = time.Duration(number) * time.Millisecond
		case "ctrlc":
			found.ctrlC = int(number)
		case "log":
			found.log = number
		case "writes":
			found.writes = time.Duration(number) * time.Millisecond
		case "deaf":
			found.deaf = true
		case "torn":
			found.torn = true
		case "child":
			found.child = true
		case "hang":
			found.hang = true
		case "late":
			found.late = true
		case "unready":
			found.unready = true
		}
	}
	env := map[string]string{}
	for _, entry := range os.Environ() {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			env[name] = value
		}
	}
	program, _ := os.Executable()
	dir, _ := os.Getwd()
	note(name, map[string]any{
		"event": "start", "pid": os.Getpid(), "program": program, "args": os.Args[1:], "dir": dir, "env": env,
	})
	return found
}

// Logs that it stops, and returns the code.
func stopped(name, why string, code int) int {
	note(name, map[string]any{"event": "stop", "why": why, "code": code, "pid": os.Getpid()})
	return code
}

// The next line of the instructions, removed unless it is the last.
func nextLine(name string) string {
	path := testFile(name + ".do")
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	if rest != "" {
		temporary := fmt.Sprintf("%s-%d", path, os.Getpid())
		if os.WriteFile(temporary, []byte(rest), 0o644) == nil {
			_ = os.Rename(temporary, path)
		}
	}
	return line
}

// Appends one line to the log, in one write, so that lines of two processes do not mix.
func note(name string, said map[string]any) {
	line, err := json.Marshal(said)
	if err != nil {
		return
	}
	_ = os.MkdirAll(testFolder, 0o755)
	file, err := os.OpenFile(testFile(name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.Write(append(line, '\n'))
}

// The main loop of a child that never ends and keeps stdout open.
func forEver() {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, os.Interrupt)
	select {}
}

// Says on both of its outputs that it is there.
func announce(name string) {
	fmt.Printf("%s is up\n", name)
	fmt.Fprintf(os.Stderr, "%s complains\n", name)
}

// Runs like a server until it must end; returns its exit code.
func serve(name string, told orders) int {
	interrupted := make(chan os.Signal, 8)
	signal.Notify(interrupted, os.Interrupt)
	if told.child {
		child := exec.Command(os.Args[0], "--for-ever")
		if own, err := os.Executable(); err == nil {
			child.Path = own
		}
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			logf("ERROR", "cannot start a child: %v", err)
		}
	}

	begun := time.Now()
	lines := &logLines{name: name, torn: told.torn}
	look := time.NewTicker(20 * time.Millisecond)
	for {
		elapsed := time.Since(begun)
		if told.ends && elapsed >= told.after {
			return stopped(name, "exit", told.code)
		}
		if code, err := os.ReadFile(testFile(name + ".now")); err == nil {
			_ = os.Remove(testFile(name + ".now"))
			number, _ := strconv.Atoi(strings.TrimSpace(string(code)))
			return stopped(name, "now", number)
		}
		lines.writeUntil(told.log * (elapsed.Milliseconds() + 20) / 1000)
		select {
		case <-interrupted:
			if !told.deaf {
				return stopped(name, "ctrl-c", told.ctrlC)
			}
		case <-look.C:
		}
	}
}

// Log lines of 100 bytes.
type logLines struct {
	name    string
	torn    bool
	number  int
	written int64
}

func (lines *logLines) writeUntil(limit int64) {
	for lines.written < limit {
		var block []byte
		for len(block)+100 <= 64*1024 && lines.written+int64(len(block)) < limit {
			lines.number++
			line := fmt.Sprintf("2026-11-21 08:00:00.000 [INFO][1] %s/log.go 7: line %010d ", lines.name, lines.number)
			block = append(block, line+strings.Repeat("x", 99-len(line))+"\n"...)
			if lines.torn {
				break
			}
		}
		if lines.torn {
			logging.Lock()
			_, _ = os.Stdout.Write(block[:50])
			time.Sleep(5 * time.Millisecond)
			_, _ = os.Stdout.Write(block[50:])
			logging.Unlock()
		} else if _, err := os.Stdout.Write(block); err != nil {
			return
		}
		lines.written += int64(len(block))
	}
}
