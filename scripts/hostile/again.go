package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// mostAgain is the maximum number of tests that run once more.
const mostAgain = 3

// testsFailed are tests that failed.
type testsFailed struct {
	all      []key // and their packages, whose test is empty
	panicked bool  // one of them, after which other tests of its package did not run
}

func (*testsFailed) Error() string { return "tests failed: see above" }

// again runs the tests that failed once more, one after another, if they are few: the tests of
// three packages run at the same time on the processors that kernels, API servers and programs of
// the tests share, and a time can be up because of that. Which tests those were is printed at the
// end. It is no answer to an attack that succeeds sometimes, or to a panic.
func again(out io.Writer, failed *testsFailed, test func(out io.Writer, pkg, name string) error) error {
	tests := slices.DeleteFunc(slices.Clone(failed.all), func(k key) bool { return k.test == "" })
	for _, k := range failed.all {
		named := slices.ContainsFunc(tests, func(t key) bool { return t.pkg == k.pkg })
		if !named || strings.HasPrefix(k.test, "TestHostile") {
			return failed
		}
	}
	if len(tests) > mostAgain || failed.panicked {
		return failed
	}
	for _, k := range tests {
		fmt.Fprintf(out, "\n%s of %s failed: once more\n", k.test, k.pkg)
		if err := test(out, k.pkg, k.test); err != nil {
			return fmt.Errorf("%s of %s failed twice: %w", k.test, k.pkg, err)
		}
	}
	for _, k := range tests {
		fmt.Fprintf(out, "%s of %s failed once, and passed once more\n", k.test, k.pkg)
	}
	return nil
}

// goTest runs a test.
func goTest(out io.Writer, pkg, name string) error {
	cmd := exec.Command("go", "test", "-count=1", "-timeout", "10m", "-v", "-run", "^"+name+"$", pkg)
	cmd.Stdout = out
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
