package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// A mutant is a change of one place of a file.
type mutant struct {
	file     string
	text     []byte // of the file
	position token.Position
	from, to int    // bytes that are replaced
	by       string // what replaces them
}

// String describes the change.
func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s → %s", filepath.Base(m.file), m.position.Line, quoted(string(m.text[m.from:m.to])), quoted(m.by))
}

// quoted returns a text as one short line.
func quoted(text string) string {
	const most = 60
	if text == "" {
		return "nothing"
	}
	if q := strconv.Quote(text); len(q) > most {
		return q[:most] + `…"`
	}
	return strconv.Quote(text)
}

// write writes the changed file and an overlay for go below a directory, and returns the name of the overlay.
func (m mutant) write(dir string) (overlay string, err error) {
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	text := slices.Concat(m.text[:m.from], []byte(m.by), m.text[m.to:])
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, data, 0o600)
}

// others are the operators that replace one.
var others = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.REM: token.QUO, token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND, token.XOR: token.OR,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
	token.BREAK: token.CONTINUE, token.CONTINUE: token.BREAK,
}

// mutantsOf returns the mutants of a file: other operators, other numbers, negated conditions, and statements left
// out.
func mutantsOf(name string, text []byte) (all []mutant, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, 0)
	if err != nil {
		return nil, err
	}
	replace := func(from, to token.Pos, by string) {
		all = append(all, mutant{name, text, files.Position(from), files.Position(from).Offset, files.Position(to).Offset, by})
	}
	operator := func(at token.Pos, op token.Token) {
		if other, ok := others[op]; ok {
			replace(at, at+token.Pos(len(op.String())), other.String())
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			operator(n.OpPos, n.Op)
		case *ast.IncDecStmt:
			operator(n.TokPos, n.Tok)
		case *ast.BranchStmt:
			if n.Label == nil {
				operator(n.Pos(), n.Tok)
			}
		case *ast.AssignStmt:
			operator(n.TokPos, n.Tok)
			if n.Tok == token.ASSIGN {
				replace(n.Pos(), n.End(), "")
			}
		case *ast.BasicLit:
			if value, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
				replace(n.Pos(), n.End(), strconv.FormatInt(value+1, 10))
			}
		case *ast.IfStmt:
			if _, binary := n.Cond.(*ast.BinaryExpr); !binary { // whose operators change
				replace(n.Cond.Pos(), n.Cond.End(), "!("+string(text[files.Position(n.Cond.Pos()).Offset:files.Position(n.Cond.End()).Offset])+")")
			}
		case *ast.ExprStmt:
			replace(n.Pos(), n.End(), "")
		case *ast.DeferStmt:
			replace(n.Pos(), n.End(), "")
		}
		return true
	})
	return all, nil
}
