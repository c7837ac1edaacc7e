package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

var function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// TestThreatModel: each row of docs/threat-model.md has an attacker, a goal, a defense and tests
// that exist, and each hostile test is in a row.
func TestThreatModel(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, model))
	require.NoError(t, err)
	threats := readThreats(string(page))
	require.Greater(t, len(threats), 20)
	tests := allTests(t)
	var listed []string
	for _, row := range threats {
		require.NotEmptyf(t, row.tests,
			"%s of %q (%s): a row has the cells | attacker | goal | what stops it | test |, and its tests are named `package.TestName` or `testdata/scenarios/NAME.txtar`",
			model, row.attacker, row.goal)
		require.NotEmpty(t, row.goal)
		require.NotEmpty(t, row.defense)
		listed = append(listed, row.tests...)
		for _, name := range row.tests {
			if strings.HasSuffix(name, ".txtar") {
				require.FileExists(t, filepath.Join(root, name))
				continue
			}
			require.Truef(t, slices.Contains(tests, name), "%s names the test %s, which does not exist", model, name)
		}
	}
	var missing []string
	for _, name := range tests {
		if strings.Contains(name, ".TestHostile") && !slices.Contains(listed, name) {
			missing = append(missing, name)
		}
	}
	require.Emptyf(t, missing, "%s does not name these hostile tests", model)
}

// allTests returns all tests and fuzz tests, as package.Name.
func allTests(t *testing.T) []string {
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(p))
		for _, m := range function.FindAllSubmatch(text, -1) {
			out = append(out, filepath.ToSlash(rel)+"."+string(m[1]))
		}
		return err
	})
	require.NoError(t, err)
	return out
}

const model1 = `
| attacker | goal | what stops it | test |
| --- | --- | --- | --- |
| a member | write for another | the broker | ` + "`broker.TestHostileMember`, `agent/mesh.TestX`" + ` |
| short | row |
`

func TestReadThreats(t *testing.T) {
	require.Equal(t, []threat{
		{"a member", "write for another", "the broker", []string{"broker.TestHostileMember", "agent/mesh.TestX"}},
		{attacker: "short"},
	}, readThreats(model1))
}

func TestRun(t *testing.T) {
	pass := []string{
		`{"Action":"output","Package":"subctl/broker","Test":"TestHostileMember","Output":"=== RUN\n"}`,
		`{"Action":"pass","Package":"subctl/broker","Test":"TestHostileMember/create_it"}`,
		`{"Action":"skip","Package":"subctl/broker","Test":"TestHostileMember/delete"}`,
		`{"Action":"pass","Package":"subctl/broker","Test":"TestHostileMember"}`,
		`{"Action":"pass","Package":"subctl/broker","Test":"TestOther/x"}`,
		`{"Action":"output","Package":"subctl/broker","Output":"PASS\n"}`,
		`{"Action":"output","Package":"subctl/broker","Output":"ok  \tsubctl/broker\t1.0s\n"}`,
		`{"Action":"pass","Package":"subctl/broker"}`,
	}
	do := func(least int, lines ...string) (string, error) {
		var out bytes.Buffer
		err := run(strings.NewReader(strings.Join(lines, "\n")), &out, readThreats(model1), least)
		return out.String(), err
	}
	text, err := do(1, pass...)
	require.NoError(t, err)
	require.Equal(t,
		"ok  \tsubctl/broker\t1.0s\n\na member: write for another\n  stopped  create it\n  not run  delete\n\nhostile suite: 1 cases, 0 reached their goal, 1 not run\n",
		text)

	_, err = do(2, pass...)
	require.EqualError(t, err, "1 cases ran, fewer than 2")
	_, err = do(0)
	require.EqualError(t, err, `there was no output of "go test -json"`)

	text, err = do(0, slices.Concat([]string{
		"not JSON",
		`{"Action":"output","Package":"subctl/agent","Test":"TestHostileNew","Output":"it got in\n"}`,
		`{"Action":"fail","Package":"subctl/agent","Test":"TestHostileNew"}`,
		`{"Action":"output","Package":"subctl/agent","Test":"TestHung","Output":"hung\n"}`,
		`{"Action":"fail","Package":"subctl/agent"}`,
	}, pass)...)
	require.EqualError(t, err, "1 attackers reached their goal")
	require.True(t, strings.HasPrefix(text, "not JSON\nit got in\nhung\n"), text)
	require.Contains(t, text, "not in docs/threat-model.md: \n  REACHED  TestHostileNew\n")

	_, err = do(0, append(pass, `{"Action":"fail","Package":"subctl/cmd","Test":"TestOther"}`)...)
	require.EqualError(t, err, "tests failed: see above")
	require.Equal(t, &testsFailed{all: []key{{"subctl/cmd", "TestOther"}}}, err)
	_, err = do(
		0,
		append(pass, `{"Action":"output","Package":"subctl/cmd","Test":"TestOther","Output":"panic: oh [recovered]\n"}`,
			`{"Action":"fail","Package":"subctl/cmd","Test":"TestOther"}`)...)
	require.Equal(t, &testsFailed{all: []key{{"subctl/cmd", "TestOther"}}, panicked: true}, err)
}

// A few tests that failed run once more, one after another.
func TestAgain(t *testing.T) {
	for _, test := range []struct {
		failed []key
		result error
		runs   int
		want   string
	}{
		{[]key{{"cmd", "TestA"}, {"cmd", ""}}, nil, 1, ""},
		{[]key{{"cmd", "TestA"}, {"cmd", "TestB"}, {"cmd", ""}, {"agent", "TestA"}, {"agent", ""}}, nil, 3, ""},
		{
			[]key{{"cmd", "TestA"}, {"cmd", ""}},
			errors.New("exit status 1"),
			1,
			"TestA of cmd failed twice: exit status 1",
		},
		{
			[]key{{"cmd", "TestA"}, {"cmd", "TestB"}, {"cmd", "TestC"}, {"cmd", "TestD"}, {"cmd", ""}},
			nil,
			0,
			"tests failed: see above",
		},
		{[]key{{"cmd", "TestHostile"}, {"cmd", ""}}, nil, 0, "tests failed: see above"},
		{[]key{{"cmd", ""}}, nil, 0, "tests failed: see above"},
		{[]key{{"cmd", "TestA"}, {"cmd", ""}, {"agent", ""}}, nil, 0, "tests failed: see above"},
	} {
		var out bytes.Buffer
		runs := 0
		err := again(&out, &testsFailed{all: test.failed},
			func(io.Writer, string, string) error { runs++; return test.result })
		require.Equal(t, test.runs, runs, "%v", test.failed)
		if test.want != "" {
			require.EqualError(t, err, test.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, runs, strings.Count(out.String(), "failed once, and passed once more\n"))
	}
	require.Error(t, again(io.Discard, &testsFailed{all: []key{{"cmd", "TestA"}, {"cmd", ""}}, panicked: true}, nil))
}
