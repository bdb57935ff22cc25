#include "textflag.h"

// EXTREMES keeps one of each two bytes by an instruction of SSE2, which every amd64 has:
// sixteen a turn, and eight at the end if the number of words is odd.
#define EXTREMES(KEEP) \
	MOVQ in_base+0(FP), SI     \
	MOVQ in_len+8(FP), CX      \
	MOVQ inout_base+24(FP), DI \
	MOVQ signs+48(FP), X7      \
	PUNPCKLQDQ X7, X7          \
	SUBQ $2, CX                \
	JLT  last                  \
	                           \
loop:                              \
	MOVOU (SI), X0             \
	MOVOU (DI), X1             \
	PXOR  X7, X0               \
	PXOR  X7, X1               \
	KEEP  X0, X1               \
	PXOR  X7, X1               \
	MOVOU X1, (DI)             \
	ADDQ  $16, SI              \
	ADDQ  $16, DI              \
	SUBQ  $2, CX               \
	JGE   loop                 \
	                           \
last:                              \
	ADDQ $2, CX                \
	JEQ  done                  \
	MOVQ (SI), X0              \
	MOVQ (DI), X1              \
	PXOR X7, X0                \
	PXOR X7, X1                \
	KEEP X0, X1                \
	PXOR X7, X1                \
	MOVQ X1, (DI)              \
	                           \
done:                              \
	RET

// func max8(in, inout []uint64, signs uint64)
TEXT ·max8(SB), NOSPLIT, $0-56
	EXTREMES(PMAXUB)

// func min8(in, inout []uint64, signs uint64)
TEXT ·min8(SB), NOSPLIT, $0-56
	EXTREMES(PMINUB)
