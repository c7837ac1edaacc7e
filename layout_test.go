package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Columns of a line, where a tab counts as four.
const (
	codeColumns = 120 // of Go, except for what stands in one literal, which can be searched for
	textColumns = 100 // of comments
)

// TestLayout holds the house to what gofumpt does not know: the length of lines, and one
// assignment a line.
func TestLayout(t *testing.T) {
	t.Parallel()
	var faults []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasPrefix(d.Name(), "zz_generated"):
			return nil
		}
		faults = append(faults, layoutFaults(t, path)...)
		return nil
	}))
	require.Empty(t, faults, strings.Join(faults, "\n"))
}

func layoutFaults(t *testing.T, path string) (faults []string) {
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	require.NoError(t, err)
	at := func(pos token.Pos) string { return fset.Position(pos).String() }

	literals := map[int]bool{} // the lines that have a string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			for l := fset.Position(lit.Pos()).Line; l <= fset.Position(lit.End()).Line; l++ {
				literals[l] = true
			}
		}
		return true
	})
	comments := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			line := fset.Position(c.Pos()).Line
			comments[line] = true
			text := strings.TrimLeft(strings.TrimPrefix(c.Text, "//"), " ")
			long := columns(c.Text)+columns(indent(src, fset, c.Pos())) > textColumns
			if alone(src, fset, c.Pos()) && long && strings.Contains(text, " ") && !strings.HasPrefix(text, "+") &&
				!strings.HasPrefix(c.Text, "//\t") && !strings.HasPrefix(c.Text, "//  ") &&
				!strings.HasPrefix(c.Text, "/*") {
				faults = append(faults, at(c.Pos())+": a comment of more than 100 columns")
			}
		}
	}
	for i, line := range strings.Split(string(src), "\n") {
		if columns(line) > codeColumns && !literals[i+1] && !comments[i+1] {
			faults = append(faults, path+": "+line+": more than 120 columns")
		}
	}
	check := func(list []ast.Stmt) {
		for _, s := range list {
			if a, ok := s.(*ast.AssignStmt); ok && len(a.Lhs) > 1 && len(a.Lhs) == len(a.Rhs) && !swaps(a) {
				faults = append(faults, at(a.Pos())+": several assignments on a line")
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.BlockStmt:
			check(x.List)
		case *ast.CaseClause:
			check(x.Body)
		case *ast.CommClause:
			check(x.Body)
		}
		return true
	})
	return faults
}

// swaps reports whether a value depends on what is assigned before it, as in a, b = b, a.
func swaps(a *ast.AssignStmt) bool {
	for i, left := range a.Lhs {
		id, ok := left.(*ast.Ident)
		for !ok {
			switch x := left.(type) {
			case *ast.SelectorExpr:
				left = x.X
			case *ast.IndexExpr:
				left = x.X
			case *ast.StarExpr:
				left = x.X
			default:
				return true
			}
			id, ok = left.(*ast.Ident)
		}
		found := false
		for _, right := range a.Rhs[i+1:] {
			ast.Inspect(right, func(n ast.Node) bool {
				other, is := n.(*ast.Ident)
				found = found || is && other.Name == id.Name
				return true
			})
		}
		if found {
			return true
		}
	}
	return false
}

func indent(src []byte, fset *token.FileSet, pos token.Pos) string {
	p := fset.Position(pos)
	return string(src[p.Offset-p.Column+1 : p.Offset])
}

func alone(src []byte, fset *token.FileSet, pos token.Pos) bool {
	return strings.TrimSpace(indent(src, fset, pos)) == ""
}

func columns(s string) int {
	return len([]rune(s)) + 3*strings.Count(s, "\t")
}
