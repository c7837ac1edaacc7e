package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// members reads an archive back: path, type and mode in octal, content.
func members(t *testing.T, archive []byte) (out []string) {
	t.Helper()
	for at := 0; ; {
		require.Zero(t, at%4, "members begin at multiples of 4")
		require.Equal(t, "070701", string(archive[at:at+6]))
		field := func(i int) (n int) {
			_, err := fmt.Sscanf(string(archive[at+6+8*i:at+14+8*i]), "%08x", &n)
			require.NoError(t, err)
			return n
		}
		mode := field(1)
		size := field(6)
		nameSize := field(11)
		name := string(archive[at+110 : at+110+nameSize-1])
		at = (at + 110 + nameSize + 3) &^ 3
		if name == "TRAILER!!!" {
			return out
		}
		out = append(out, fmt.Sprintf("%s %o %s", name, mode, archive[at:at+size]))
		at = (at + size + 3) &^ 3
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "usr/lib"), 0o755))
	require.NoError(t, os.Symlink("usr/lib", filepath.Join(dir, "lib")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "usr/lib/a.so"), []byte("first"), 0o644))

	var b bytes.Buffer
	a := newArchive(&b)
	a.dir("/tmp", 0o777|fs.ModeSticky)
	a.tree(dir, "/")
	a.put("/lib/a.so", 0o755, []byte("second"))
	a.put("/lib/deep/b.so", 0o755, []byte("b"))
	a.file(filepath.Join(dir, "lib/a.so"), "/sbin/c")
	require.NoError(t, a.close())
	require.Equal(t, []string{
		"tmp 41777 ", "lib 120777 usr/lib", "usr 40755 ", "usr/lib 40755 ", "usr/lib/a.so 100644 first",
		"usr/lib/deep 40755 ", "usr/lib/deep/b.so 100755 b", "usr/sbin 40755 ", "usr/sbin/c 100644 first",
	}, members(t, b.Bytes()))
}

func TestArchiveError(t *testing.T) {
	a := newArchive(io.Discard)
	a.file("/does/not/exist", "/a")
	a.put("/b", 0o644, nil)
	require.ErrorIs(t, a.close(), fs.ErrNotExist)
}

func TestFollow(t *testing.T) {
	const said = `testkernel: up after 5 s
--- PASS: TestA (0.01s)
    --- SKIP: TestB/c (0.00s)
    c_test.go:3: no
--- FAIL: TestC (0.00s)
testkernel: status 1: once more
testkernel: exit 0 /src/a
panic: half a li`
	var out strings.Builder
	got, err := follow(strings.NewReader("testkernel: row [\n"+said), &out)
	require.NoError(t, err)
	require.Equal(t, said, out.String())
	require.Equal(t, []string{"    c_test.go:3: no\n", "--- FAIL: TestC (0.00s)\n"}, got.failed[len(got.failed)-2:])
	got.failed = nil
	require.Equal(t, saying{exits: []string{"0"}, skipped: []string{"TestB/c"}, rows: []byte("[\n")}, got)
}

// What the guest measured is added to what was measured before.
func TestKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	require.NoError(t, measure.Keep(file, measure.Info("throughput", measure.Values{1}, "Gbit/s")))
	t.Setenv(measure.File, file)
	require.NoError(t, keep(nil), "there was no benchmark")
	require.NoError(t, keep([]byte(`[{"name": "throughput, in QEMU", "value": 2, "unit": "Gbit/s", "holds": true}]`)))
	require.Error(t, keep([]byte(`[{"name": "cut off`)))
	rows, err := measure.Read(file)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	t.Setenv(measure.File, "")
	require.NoError(t, keep([]byte(`[]`)), "nobody asked to keep it")
}

func TestChoose(t *testing.T) {
	require.Equal(t, suites, choose(nil, "", ""))
	require.Equal(t, []suite{{pkg: "./a", run: "X"}}, choose([]string{"./a"}, "X", ""))
	require.Equal(t, []suite{{pkg: "./a", run: "^$", bench: "."}}, choose([]string{"./a"}, "", "."))
	for i, s := range choose(nil, "", ".") {
		require.Equal(t, suite{pkg: benchmarks[i].pkg, run: "^$", bench: benchmarks[i].bench}, s)
	}
	for i, s := range choose(nil, "", "X") {
		require.Equal(t, suite{pkg: benchmarks[i].pkg, run: "^$", bench: "X"}, s)
	}
	require.NotEqual(t, "X", suites[0].run)
}

// What decides whether the guest's tests passed.
func TestVerdict(t *testing.T) {
	suites := []suite{{pkg: "./a"}, {pkg: "./b"}}
	for _, test := range []struct {
		exits []string
		want  string
	}{
		{[]string{"0", "0"}, ""},
		{[]string{"0", "1"}, "the tests of ./b fail"},
		{[]string{"2", "0"}, "the tests of ./a fail"},
		{[]string{"1", "139"}, "the tests of ./a fail\nthe tests of ./b fail"},
		{[]string{"0"}, "the guest ended in the tests of ./b"},
		{[]string{"1"}, "the guest ended in the tests of ./b\nthe tests of ./a fail"},
		{nil, "the guest ended in the tests of ./a"},
	} {
		err := verdict(suites, test.exits)
		if test.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, test.want)
		}
	}
}

// A test that skips where the kernel lacks a feature runs in the guest, so that it runs somewhere.
func TestNothingIsSkippedEverywhere(t *testing.T) {
	found := 0
	for _, s := range suites {
		files, err := filepath.Glob(filepath.Join("../..", s.pkg, "*_test.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, s.pkg)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			require.NoError(t, err)
			for _, d := range parsed.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || !mayBeSkipped(f) {
					continue
				}
				found++
				require.Regexp(t, strings.Split(s.run, "/")[0], f.Name.Name,
					"%s: it wants a feature of the kernel, and does not run in the guest", file)
			}
		}
	}
	require.NotZero(t, found)
}

// mayBeSkipped reports whether a test calls nstest.Kernel.
func mayBeSkipped(f *ast.FuncDecl) (calls bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Kernel" {
			x, ok := s.X.(*ast.Ident)
			calls = calls || ok && x.Name == "nstest"
		}
		return true
	})
	return calls
}
