package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConditions: docs/conditions.md has every type and every reason of the conditions
// and Events that the code writes, and no others.
func TestConditions(t *testing.T) {
	types := map[string]bool{}
	reasons := map[string]bool{}
	for _, dir := range []string{
		"agent", "agent/mesh/report", "agent/parts", "agent/role", "agent/roles", "globalnet/allocator", "services/discoverer",
		"broker", "broker/exchange", "api/submariner/v1",
		"api/submariner/v1alpha1", "services",
	} {
		for name, value := range constants(t, filepath.Join(root, dir)) {
			switch {
			case strings.HasPrefix(name, "Condition"):
				types[value] = true
			case strings.HasPrefix(strings.ToLower(name), "reason"):
				reasons[value] = true
			}
		}
	}
	require.Greater(t, len(types), 6, "where have the constants gone?")
	require.Greater(t, len(reasons), 15, "where have the constants gone?")

	page, err := os.ReadFile(filepath.Join(root, "docs", "conditions.md"))
	require.NoError(t, err)
	require.Equal(t, types, found(`(?m)^.([A-Z]\w+).: `, page), "types of conditions")
	require.Equal(t, reasons, found("(?m)^\\| (?:True|False|Event) \\| `(\\w+)` \\|", page), "reasons")
}

// found returns what a pattern's group matches.
func found(pattern string, page []byte) map[string]bool {
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(page, -1) {
		out[string(m[1])] = true
	}
	return out
}

// constants returns the constants of a package that are strings, by name.
func constants(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					out[spec.Names[i].Name], err = strconv.Unquote(literal.Value)
					require.NoError(t, err)
				}
			}
			return true
		})
	}
	return out
}
