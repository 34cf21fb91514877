package redislock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// predeclared are the functions and types of the language that the client uses.
var predeclared = map[string]bool{"any": true, "append": true, "bool": true, "cap": true, "clear": true, "close": true,
	"copy": true, "delete": true, "error": true, "int": true, "int64": true, "len": true, "make": true, "max": true,
	"min": true, "new": true, "panic": true, "recover": true, "string": true, "uint64": true}

// A name that shadows a predeclared one or an import misleads the reader of a signature, and breaks the next change of
// the body.
func TestNoNameShadowsAPredeclaredOneOrAnImport(t *testing.T) {
	var paths []string
	for _, pattern := range []string{"*.go", "gocron/*.go", "opentelemetry/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		paths = append(paths, found...)
	}
	files := token.NewFileSet()
	for _, path := range paths {
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		hidden := map[string]bool{}
		for _, each := range file.Imports {
			name := strings.Trim(each.Path.Value, `"`)
			name = name[strings.LastIndex(name, "/")+1:]
			if each.Name != nil {
				name = each.Name.Name
			}
			hidden[name] = true
		}
		check := func(names ...*ast.Ident) {
			for _, each := range names {
				if predeclared[each.Name] || hidden[each.Name] {
					t.Errorf("%v: %s", files.Position(each.Pos()), each.Name)
				}
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncType:
				for _, each := range node.Params.List {
					check(each.Names...)
				}
				if node.Results != nil {
					for _, each := range node.Results.List {
						check(each.Names...)
					}
				}
			case *ast.ValueSpec:
				check(node.Names...)
			case *ast.AssignStmt:
				for _, each := range node.Lhs {
					if name, isName := each.(*ast.Ident); isName && node.Tok == token.DEFINE {
						check(name)
					}
				}
			}
			return true
		})
	}
}
