// Runcw runs the runc beside it, after it has removed linux.seccomp from the bundle's config.json.
// Containerd asks for its default seccomp profile for every sandbox, and a runc built without
// libseccomp (a C library with headers that few machines have) refuses to start what asks for one.
// In a laboratory nobody needs the profile.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runcw:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if i := slices.IndexFunc(args, func(a string) bool { return a == "--bundle" || a == "-b" }); i >= 0 &&
		i+1 < len(args) &&
		slices.Contains(args, "create") {
		if err := dropSeccomp(filepath.Join(args[i+1], "config.json")); err != nil {
			return fmt.Errorf("dropping the seccomp profile: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runc := filepath.Join(filepath.Dir(self), "runc")
	return fmt.Errorf("running %s: %w", runc, syscall.Exec(runc, append([]string{runc}, args...), os.Environ()))
}

func dropSeccomp(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// Raw, so that everything else stays as it is, numbers of 64 bits included.
	var spec, linux map[string]json.RawMessage
	if err := json.Unmarshal(b, &spec); err != nil {
		return err
	}
	if err := json.Unmarshal(spec["linux"], &linux); err != nil {
		return err
	}
	delete(linux, "seccomp")
	if spec["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if b, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}
