package servertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Programs returns the Go programs of a page that contain these words.
func Programs(t T, page, words string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], words) {
			found = append(found, block[1])
		}
	}
	return found
}

// Built compiles a program of a page for a server, in the module of the test. Only the addresses are changed, and what
// is to be replaced.
func Built(t T, program string, server *Server, replace ...string) (binary string) {
	t.Helper()
	dir, err := os.MkdirTemp(".", "page-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	text := strings.NewReplacer(append(replace, "localhost:6379", server.Addr())...).Replace(program)
	if !strings.Contains(text, server.Addr()) {
		t.Fatal("it connects to another server")
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(t.TempDir(), "program")
	if printed, err := exec.Command("go", "build", "-o", binary, "./"+dir).CombinedOutput(); err != nil {
		t.Fatalf("%s", printed)
	}
	return binary
}
