package layouts

import (
	"fmt"
	"html"
	"strings"

	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
)

// Pictures are the names that Draw accepts.
var Pictures = []string{"blocks", "swizzle"}

// Draw returns an SVG: "blocks" shows the rowwise and columnwise blocks of a 64×64 MXFP8 matrix
// with their scales, "swizzle" the tiles of 256×8 scales in the swizzled order and the order of
// rows in a tile. Every place comes from the formats and orders themselves.
func Draw(picture string) ([]byte, error) {
	switch strings.ToLower(picture) {
	case "blocks":
		return drawBlocks(quant.MXFP8, 64), nil
	case "swizzle":
		return drawSwizzle(layout.Swizzled, 256, 8), nil
	}
	return nil, naming.Unknown("picture", picture, Pictures)
}

// palette has light colors, on which dark text can be read.
var palette = []string{"#9ecae1", "#fdd49e", "#a1d99b", "#fcae91", "#c5b0d5", "#d9d9d9"}

// A picture is an SVG under construction.
type picture struct{ strings.Builder }

func newPicture(width, height int) *picture {
	p := &picture{}
	fmt.Fprintf(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", width, height, width,
		height)
	fmt.Fprintf(p, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n<g font-family=\"sans-serif\" font-size=\"13\" fill=\"#222222\">\n",
		width, height)
	return p
}

func (p *picture) text(x, y int, anchor, text string) {
	fmt.Fprintf(p, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(text))
}

func (p *picture) rect(x, y, width, height int, color string) {
	fmt.Fprintf(p, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"0.5\"/>\n", x, y, width,
		height, color)
}

func (p *picture) end() []byte {
	p.WriteString("</g>\n</svg>\n")
	return []byte(p.String())
}

// drawBlocks draws an n×n matrix twice, with the blocks along rows and along columns.
func drawBlocks(f quant.Format, n int) []byte {
	const cell, left, top = 4, 20, 46
	width := n * cell
	rows, blocks := f.ScaleShape(n, n)
	p := newPicture(2*(left+width+20+blocks*12)+40, top+width+44)
	for side, title := range []string{"rowwise", "columnwise"} {
		x := left + side*(width+blocks*12+60)
		p.text(x, top-26, "start", fmt.Sprintf("%s: blocks of %d×%d", title, []int{f.Block.Rows, f.Block.Cols}[side],
			[]int{f.Block.Cols, f.Block.Rows}[side]))
		for i := range rows {
			for b := range blocks {
				color := palette[(i+2*b)%len(palette)]
				extent := f.Block.Cols * cell
				if side == 0 {
					p.rect(x+b*extent, top+i*cell, extent, cell, color)
					p.rect(x+width+10+b*12, top+i*cell, 12, cell, color)
				} else {
					p.rect(x+i*cell, top+b*extent, cell, extent, color)
					p.rect(x+i*cell, top+width+10+b*12, cell, 12, color)
				}
			}
		}
		shape := fmt.Sprintf("%d×%d", rows, blocks)
		if side == 1 {
			shape = fmt.Sprintf("%d×%d", blocks, rows)
		}
		p.text(x, top-8, "start", fmt.Sprintf("%d×%d elements, %s scales", n, n, shape))
	}
	return p.end()
}

// drawSwizzle draws rows×blocks scales in tiles, the tiles one after another, and the order of
// the words of four scales in a tile.
func drawSwizzle(o layout.Order, rows, blocks int) []byte {
	const tileRows, tileBlocks, wide, high = 128, 4, 64, 96
	p := newPicture(760, 440)
	tiles := rows / tileRows * (blocks / tileBlocks)
	p.text(20, 24, "start", fmt.Sprintf("%d×%d scales in tiles of %d×%d", rows, blocks, tileRows, tileBlocks))
	p.text(240, 24, "start", "1. tiles one after another")
	for r := 0; r < rows; r += tileRows {
		for b := 0; b < blocks; b += tileBlocks {
			i := o.Offset(r, b, rows, blocks) / (tileRows * tileBlocks)
			color := palette[i%len(palette)]
			x, y := 20+b/tileBlocks*wide, 36+r/tileRows*high
			p.rect(x, y, wide, high, color)
			p.text(x+wide/2, y+high/2, "middle", fmt.Sprint(i))
			p.rect(240+i*(wide+6), 36, wide, high, color)
			p.text(240+i*(wide+6)+wide/2, 36+high/2, "middle", fmt.Sprint(i))
		}
	}
	p.text(240+tiles*(wide+6)/2, 36+high+20, "middle", fmt.Sprintf("%d bytes each", tileRows*tileBlocks))
	p.text(20, 276, "start", "2. in a tile, rows in this order, four scales of each:")
	order := make([]int, tileRows) // the row of each word of the tile
	for r := range tileRows {
		order[o.Offset(r, 0, rows, blocks)/tileBlocks] = r
	}
	const shown, box = 16, 44
	for line, from := range []int{0, tileRows - shown} {
		for i, r := range order[from : from+shown] {
			x, y := 20+i*box, 292+line*60
			p.rect(x, y, box, 28, palette[r/32%len(palette)])
			p.text(x+box/2, y+19, "middle", fmt.Sprint(r))
		}
		if line == 0 {
			p.text(20+shown*box/2, 344, "middle", "…")
		}
	}
	p.text(20, 412, "start", "Word w of a tile holds row w/4 + 32·(w%4): rows that are 32 apart share 16 bytes.")
	return p.end()
}
