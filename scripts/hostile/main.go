// Command hostile reads the output of "go test -json" and prints it as "go test" does. After it,
// it prints the hostile suite: each case of the tests named TestHostile, with the attacker and
// the goal that docs/threat-model.md has for the test. It fails if a test failed, if an attacker
// reached its goal, or if there are fewer cases than it is told to expect. A few other tests that
// failed run once more: see again.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

const model = "docs/threat-model.md"

func main() {
	least := flag.Int("least", 0, "fail if there are fewer cases")
	flag.Parse()
	page, err := os.ReadFile(model)
	if err == nil {
		err = run(os.Stdin, os.Stdout, readThreats(string(page)), *least)
	}
	if failed := (*testsFailed)(nil); errors.As(err, &failed) {
		err = again(os.Stdout, failed, goTest)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

// threat is a row of the threat model.
type threat struct {
	attacker, goal, defense string
	tests                   []string // package.Test, or a scenario
}

var (
	cell  = regexp.MustCompile(`\s*\|\s*`)
	named = regexp.MustCompile("`([a-z0-9/]+\\.(?:Test|Fuzz)\\w+|testdata/scenarios/[a-z-]+\\.txtar)`")
)

// readThreats returns the rows of the table in the threat model. A row that has not four
// cells has no tests.
func readThreats(page string) []threat {
	var out []threat
	for line := range strings.Lines(page) {
		line, isRow := strings.CutPrefix(strings.TrimSpace(line), "| ")
		cells := cell.Split(strings.TrimSuffix(line, " |"), -1)
		if !isRow || cells[0] == "---" || cells[0] == "attacker" {
			continue
		}
		t := threat{attacker: cells[0]}
		if len(cells) == 4 {
			t.goal = cells[1]
			t.defense = cells[2]
			for _, m := range named.FindAllStringSubmatch(cells[3], -1) {
				t.tests = append(t.tests, m[1])
			}
		}
		out = append(out, t)
	}
	return out
}

// event is a line of "go test -json".
type event struct {
	Action, Package, Test, Output string
}

// key identifies a test.
type key struct{ pkg, test string }

// run copies the output of tests, and prints the hostile suite.
func run(in io.Reader, out io.Writer, threats []threat, least int) error {
	results := map[key]string{}
	output := map[key]string{}
	var failed testsFailed
	packages := 0
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}
		at := key{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			failed.panicked = failed.panicked || strings.HasPrefix(e.Output, "panic: ")
			if e.Test != "" {
				output[at] += e.Output
			} else if e.Output != "PASS\n" {
				fmt.Fprint(out, e.Output)
			}
		case "pass", "fail", "skip":
			if e.Action == "fail" && !strings.Contains(e.Test, "/") {
				failed.all = append(failed.all, at)
			}
			if e.Test == "" {
				packages++
				printRest(out, output, e)
				continue
			}
			results[at] = e.Action
			if e.Action == "fail" {
				fmt.Fprint(out, output[at])
			}
			delete(output, at)
		}
	}
	err := report(out, suite(results, threats), least)
	switch {
	case lines.Err() != nil:
		return fmt.Errorf("reading the output of the tests: %w", lines.Err())
	case packages == 0:
		return fmt.Errorf("there was no output of \"go test -json\"")
	case err == nil && failed.all != nil:
		return &failed
	}
	return err
}

// printRest prints the output of the tests that had not ended when their package failed.
func printRest(out io.Writer, output map[key]string, e event) {
	for _, at := range slices.SortedFunc(maps.Keys(output), func(a, b key) int { return cmp.Compare(a.test, b.test) }) {
		if at.pkg != e.Package {
			continue
		}
		if e.Action == "fail" {
			fmt.Fprint(out, output[at])
		}
		delete(output, at)
	}
}

// attack is a case of the hostile suite.
type attack struct {
	attacker, goal, name, result string
}

const (
	stopped = "stopped"
	reached = "REACHED"
	notRun  = "not run"
)

// suite returns the cases: the hostile tests and subtests that have no subtests.
func suite(results map[key]string, threats []threat) []attack {
	parents := map[key]bool{}
	for at := range results {
		for i, c := range at.test {
			if c == '/' {
				parents[key{at.pkg, at.test[:i]}] = true
			}
		}
	}
	var out []attack
	for at, result := range results {
		if !strings.HasPrefix(at.test, "TestHostile") || parents[at] && result != "fail" {
			continue
		}
		test, name, _ := strings.Cut(at.test, "/")
		a := attack{attacker: "not in " + model, name: strings.ReplaceAll(cmp.Or(name, test), "_", " "), result: notRun}
		where := strings.TrimPrefix(at.pkg, "subctl/") + "." + test
		for _, t := range threats {
			if slices.Contains(t.tests, where) {
				a.attacker = t.attacker
				a.goal = t.goal
				break
			}
		}
		switch result {
		case "pass":
			a.result = stopped
		case "fail":
			a.result = reached
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b attack) int {
		return cmp.Or(cmp.Compare(a.attacker, b.attacker), cmp.Compare(a.goal, b.goal), cmp.Compare(a.name, b.name))
	})
	return out
}

// report prints the cases and how many there are.
func report(out io.Writer, cases []attack, least int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	count := map[string]int{}
	last := ""
	for _, a := range cases {
		if head := a.attacker + ": " + clip(a.goal, 120); head != last {
			fmt.Fprintf(w, "\n%s\n", head)
			last = head
		}
		fmt.Fprintf(w, "  %s\t%s\n", a.result, a.name)
		count[a.result]++
	}
	_ = w.Flush()
	ran := count[stopped] + count[reached]
	fmt.Fprintf(out, "\nhostile suite: %d cases, %d reached their goal, %d not run\n", ran, count[reached],
		count[notRun])
	switch {
	case count[reached] > 0:
		return fmt.Errorf("%d attackers reached their goal", count[reached])
	case ran < least:
		return fmt.Errorf("%d cases ran, fewer than %d", ran, least)
	}
	return nil
}

// clip shortens a text to a number of runes.
func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
